// Decode: which blocks of a tile the rows of a KV head drop together, the weights of the others, and what many λ at
// once would have dropped.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

template <class T>
void DecodeHead<T>::weigh_tile(float* scores, const TileRows<T>& tile, bool always) {
  const bool may_skip = mode_of(p_, item_.request, head_kv_) == Mode::skip && LONGHAUL_MUTATE(7, !always, true);
  for (int i = 0; i < rows_; ++i) {
    DecodeRow& row = row_[i];
    measure(row, scores + i * kTile, tile);
    if (may_skip) row.threshold = threshold(row, row.lambda, row.log2_lambda, row.reference_sum);
  }
  bool visible[kBlocks];
  now_.any = false;
  for (int b = 0; b < kBlocks; ++b) {
    visible[b] = false;
    now_.kept[b] = false;
    for (int i = 0; i < rows_ && !now_.kept[b]; ++i) {
      if (!sees(row_[i], b)) continue;
      visible[b] = true;
      now_.kept[b] = !may_skip || keeps(row_[i], scores + i * kTile, b, row_[i].threshold);
    }
    now_.any = now_.any || now_.kept[b];
  }
  if (p_.counters != nullptr || p_.skip_mask != nullptr) record(tile, visible);
  uint32_t probe_skipped[kBlocks] = {};
  if (p_.probes > 0 && !always) probe(scores, probe_skipped);
  if (!now_.any) return;
  for (int i = 0; i < rows_; ++i) add_weights(row_[i], scores + i * kTile);
  if (p_.probes > 0) carry_probe_sums(scores, probe_skipped);
}

/// The tile's largest score, and whether the row meets NaN or +inf. Keys that the row does not see hold -inf.
template <class T>
void DecodeHead<T>::measure(DecodeRow& row, const float* scores, const TileRows<T>& tile) const {
  seen_in_tile(row, tile, row.from, row.to);
  F m = set1(-kInfinity), product = zero();
  for (int j = 0; j < kTile; j += kLanes) {
    const F s = load(scores + j);
    m = max(s, m);
    product = fma(s, zero(), product);  // NaN where a score is not finite
  }
  row.tile_max = max_lanes(m);
  if (!any(is_nan(product))) return;
  for (int j = row.from; j < row.to; ++j) row.poisoned = row.poisoned || !(scores[j] < kInfinity);
}

template <class T>
bool DecodeHead<T>::sees(const DecodeRow& row, int b) const {
  return row.from < row.to && row.from < (b + 1) * kBlock && row.to > b * kBlock;
}

/// The row drops a block iff all scores it sees there lie below this. Nothing lies below -inf: so it is for λ = 0, for
/// a row that has met NaN or +inf, and where nothing has been seen yet.
template <class T>
float DecodeHead<T>::threshold(const DecodeRow& row, float lambda, float log2_lambda, float reference_sum) const {
  const float joined = row.tile_max > row.max ? row.tile_max : row.max;
  if (row.poisoned || !(joined > -kInfinity && joined < kInfinity)) return -kInfinity;
  if (p_.rule == SkipRule::max) return joined + log2_lambda;
  const float reference = reference_sum * std::exp2(row.max - joined) + std::exp2(row.tile_max - joined);
  return joined + std::log2(lambda * reference);
}

/// One row's veto: a score it sees in the block reaches the threshold or is not finite.
template <class T>
bool DecodeHead<T>::keeps(const DecodeRow& row, const float* scores, int b, float threshold) const {
  const int low = row.from > b * kBlock ? row.from : b * kBlock;
  const int high = row.to < (b + 1) * kBlock ? row.to : (b + 1) * kBlock;
  if (high - low == kBlock) {
    for (int j = low; j < high; j += kLanes) {
      const F s = load(scores + j);
      if (!all(operator_and(less(s, set1(threshold)), less(set1(-kInfinity), s)))) return true;
    }
    return false;
  }
  for (int j = low; j < high; ++j) {
    if (!(scores[j] < threshold && scores[j] > -kInfinity)) return true;
  }
  return false;
}

/// Turns the kept blocks' scores into weights and joins their sum.
template <class T>
void DecodeHead<T>::add_weights(DecodeRow& row, float* scores) const {
  const float joined = row.tile_max > row.max ? row.tile_max : row.max;
  const F base = set1(joined > -kInfinity ? joined : 0.0F);
  F total = zero();
  for (int b = kBlocks - 1; b >= 0; --b) {
    if (!now_.kept[b]) continue;
    for (int j = b * kBlock; j < (b + 1) * kBlock; j += kLanes) {
      const F w = exp2(load(scores + j) - base);
      store(scores + j, w);
      total = total + w;
    }
  }
  alignas(64) float rescale[kLanes];
  store(rescale, exp2(set1(row.max) - base));
  row.rescale = rescale[0];
  const float sum = sum_lanes(total);
  row.sum = row.sum * row.rescale + sum;
  row.reference_sum = row.reference_sum * row.rescale + sum;
  row.max = joined;
}

template <class T>
int64_t DecodeHead<T>::visible_scores(int b) const {
  int64_t count = 0;
  for (int i = 0; i < rows_; ++i) {
    const int low = row_[i].from > b * kBlock ? row_[i].from : b * kBlock;
    const int high = row_[i].to < (b + 1) * kBlock ? row_[i].to : (b + 1) * kBlock;
    if (high > low) count += high - low;
  }
  return count;
}

/// Counters and the skip mask.
template <class T>
void DecodeHead<T>::record(const TileRows<T>& tile, const bool (&visible)[kBlocks]) const {
  int64_t seen = 0, skipped = 0, unread = 0;
  for (int b = 0; b < kBlocks; ++b) {
    if (!visible[b]) continue;
    const int64_t scores = visible_scores(b);
    seen += scores;
    if (!now_.kept[b]) {
      const int low = tile.low() > b * kBlock ? tile.low() : b * kBlock;
      const int keys = (tile.high() < (b + 1) * kBlock ? tile.high() : (b + 1) * kBlock) - low;
      skipped += scores;
      unread += int64_t{keys} * p_.dv * static_cast<int64_t>(sizeof(T));
    }
    if (p_.skip_mask != nullptr) {
      p_.skip_mask[(head_kv_ * p_.mask_groups + item_.request) * p_.mask_blocks + tile.begin / kBlock + b] =
          now_.kept[b] ? 1 : 2;
    }
  }
  if (p_.counters == nullptr) return;
  int64_t* counters = p_.counters + head_kv_ * p_.counters_head;
  add_counter(counters, seen);
  add_counter(counters + p_.counters_kind, skipped);
  add_counter(counters + 2 * p_.counters_kind, unread);
}

/// Bit n of skipped[b]: λ n drops block b.
template <class T>
void DecodeHead<T>::probe(const float* tile_scores, uint32_t (&skipped)[kBlocks]) const {
  int64_t* counts = p_.probe_skipped + int64_t{head_kv_} * p_.probes;
  for (int b = 0; b < kBlocks; ++b) {
    if (!now_.kept[b]) continue;  // no row sees it
    const int64_t scores = visible_scores(b);
    for (int n = 0; n < p_.probes; ++n) {
      const float lambda = p_.probe_lambdas[n];
      bool keep = false;
      for (int i = 0; i < rows_ && !keep; ++i) {
        if (!sees(row_[i], b)) continue;
        const float limit = threshold(row_[i], lambda, log2_lambda(lambda), probe_sum_[n * rows_ + i]);
        keep = keeps(row_[i], tile_scores + i * kTile, b, limit);
      }
      if (keep) continue;
      skipped[b] |= 1U << n;
      add_counter(counts + n, scores);
    }
  }
}

/// Each λ's kept mass after this tile, under its own decisions.
template <class T>
void DecodeHead<T>::carry_probe_sums(const float* scores, const uint32_t (&skipped)[kBlocks]) {
  for (int i = 0; i < rows_; ++i) {
    float block_sum[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      block_sum[b] = 0;
      if (!sees(row_[i], b)) continue;
      F sum = zero();
      for (int j = b * kBlock; j < (b + 1) * kBlock; j += kLanes) sum = sum + load(scores + i * kTile + j);
      block_sum[b] = sum_lanes(sum);
    }
    for (int n = 0; n < p_.probes; ++n) {
      float& mass = probe_sum_[n * rows_ + i];
      mass *= row_[i].rescale;
      for (int b = 0; b < kBlocks; ++b) mass += (skipped[b] >> n & 1U) != 0 ? 0.0F : block_sum[b];
    }
  }
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
