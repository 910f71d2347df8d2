// Prefill: which blocks of a tile a voting group drops, and what many λ at once would have dropped.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

/// What the rows of a group compare a block's maximum with, as a threshold test `margin < limit`.
///   rule max: margin = block_max - reference          limit = log2 λ
///   rule sum: margin = 2^(block_max - base) / reference,  limit = λ, where reference = kept mass so far and the tile's
///   maximum
/// A NaN margin never passes: that is how scores that are not finite keep their block and rows that met one keep
/// everything.
template <int kD, int kDv, Mode kMode>
struct PrefillRun<kD, kDv, kMode>::Reference {
  bool sum_rule;
  F value[kVecs];
  F base[kVecs];
  F poison[kVecs];  // 0, or NaN for a row that has met NaN or +inf, in this tile or before
};

template <int kD, int kDv, Mode kMode>
auto PrefillRun<kD, kDv, kMode>::make_reference(const Group& g, const F (&tile_max)[kVecs],
                                                const F (&joined)[kVecs]) const -> Reference {
  Reference ref;
  ref.sum_rule = p_.rule == SkipRule::sum;
  M bad_somewhere[kVecs];
  for (int r = 0; r < kVecs; ++r) {
    const F sum = load(g.sum + r * kLanes);
    ref.poison[r] = sum * zero();
    ref.base[r] = select(less_equal(joined[r], set1(-kInfinity)), zero(), joined[r]);
    // A reference of -inf (nothing seen) must not vote: -inf + inf is NaN. So must +inf.
    ref.value[r] = joined[r] + fma(joined[r], zero(), zero());
    if (ref.sum_rule) {
      const F own = exp2(tile_max[r] - ref.base[r]);
      ref.value[r] = LONGHAUL_MUTATE(9, fma(sum, exp2(load(g.base + r * kLanes) - ref.base[r]), own), own);
    }
    F bad = load(tile_->block_bad[0] + r * kLanes);
    for (int b = 1; b < kBlocks; ++b) bad = bad + load(tile_->block_bad[b] + r * kLanes);
    bad_somewhere[r] = is_nan(bad);
  }
  for (int r = 0; r < kVecs; ++r) {
    if (!any(bad_somewhere[r])) continue;  // nearly always
    alignas(64) float poison[kLanes];
    store(poison, ref.poison[r]);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int j = 0; j < kTile; ++j) {
        const float s = tile_->scores[j * kRows + r * kLanes + lane];
        if (!(s < kInfinity)) poison[lane] = __builtin_nanf("");
      }
    }
    ref.poison[r] = load(poison);
  }
  return ref;
}

template <int kD, int kDv, Mode kMode>
F PrefillRun<kD, kDv, kMode>::margin(const Reference& ref, int b, int r) const {
  const F block_max = load(tile_->block_max[b] + r * kLanes);
  const F veto = ref.poison[r] + load(tile_->block_bad[b] + r * kLanes);
  if (ref.sum_rule) return exp2(block_max - ref.base[r]) / ref.value[r] + veto;
  return (block_max - ref.value[r]) + veto;
}

/// Rows that do not exist or see no key of the block have no vote.
template <int kD, int kDv, Mode kMode>
M PrefillRun<kD, kDv, kMode>::abstains(const Group& g, const TileMask& mask, bool partial, int b, int r) const {
  if (partial) {
    const M below = less_equal(load(mask.high + r * kLanes), set1(static_cast<float>(b * kBlock)));
    const M above = less_equal(set1(static_cast<float>((b + 1) * kBlock)), load(mask.low + r * kLanes));
    return operator_or(below, above);
  }
  alignas(64) static constexpr float kRow[kRows] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F row = load(kRow + r * kLanes);
  return operator_or(less(row, set1(static_cast<float>(g.begin))),
                     less_equal(set1(static_cast<float>(LONGHAUL_MUTATE(4, g.end, g.end - 1))), row));
}

template <int kD, int kDv, Mode kMode>
void PrefillRun<kD, kDv, kMode>::drop_blocks(const Group& g, const TileMask& mask, bool partial,
                                             const F (&tile_max)[kVecs], const F (&joined)[kVecs],
                                             KeptBlocks& kept) const {
  const Reference ref = make_reference(g, tile_max, joined);
  const F limit = set1(ref.sum_rule ? g.lambda : LONGHAUL_MUTATE(3, g.log2_lambda, g.log2_lambda + 4));
  int count = 0;
  for (int i = 0; i < kept.count; ++i) {
    const int b = kept.block[i];
    bool skip = true;
    for (int r = 0; r < kVecs; ++r) {
      skip = skip && all(operator_or(less(margin(ref, b, r), limit), abstains(g, mask, partial, b, r)));
    }
    if (!skip) kept.block[count++] = b;
  }
  kept.count = count;
}

template <int kD, int kDv, Mode kMode>
int64_t PrefillRun<kD, kDv, kMode>::visible_scores(const Group& g, const TileMask& mask, bool partial, int b) const {
  if (!partial) return int64_t{kBlock} * (g.end - g.begin);
  int64_t count = 0;
  for (int r = g.begin; r < g.end; ++r) {
    const int low = static_cast<int>(mask.low[r]) > b * kBlock ? static_cast<int>(mask.low[r]) : b * kBlock;
    const int high =
        static_cast<int>(mask.high[r]) < (b + 1) * kBlock ? static_cast<int>(mask.high[r]) : (b + 1) * kBlock;
    if (high > low) count += high - low;
  }
  return count;
}

/// Counters and the skip mask.
template <int kD, int kDv, Mode kMode>
void PrefillRun<kD, kDv, kMode>::record(Group& g, const TileMask& mask, bool partial, const KeptBlocks& kept) {
  if (p_.counters == nullptr && p_.skip_mask == nullptr) return;
  bool computed[kBlocks] = {};
  for (int i = 0; i < kept.count; ++i) computed[kept.block[i]] = true;
  for (int b = 0; b < kBlocks; ++b) {
    if (!block_visible(g, b)) continue;
    const int64_t scores = visible_scores(g, mask, partial, b);
    g.visible += scores;
    if (!computed[b]) g.skipped += scores;
    if (p_.skip_mask != nullptr) {
      const int64_t block = tile_begin_ / kBlock + b;
      p_.skip_mask[(g.head * p_.mask_groups + g.mask_group) * p_.mask_blocks + block] = computed[b] ? 1 : 2;
    }
  }
}

/// The dense step, and beside it the votes under every probed λ. Under rule max the running maximum does not depend on
/// λ, since a skipped block never holds it; under rule sum each λ carries its own kept mass.
template <int kD, int kDv, Mode kMode>
void PrefillRun<kD, kDv, kMode>::probe(Group& g, const TileMask& mask, bool partial, const F (&tile_max)[kVecs],
                                       const F (&joined)[kVecs], F scale, Addend& addend) {
  const KeptBlocks& kept = addend.kept;
  const bool sum_rule = p_.rule == SkipRule::sum;
  uint32_t skipped[kBlocks] = {};  // bit i: λ i skips the block
  alignas(64) float dense_sum[kRows], old_base[kRows];
  for (int r = 0; r < kRows; ++r) {
    dense_sum[r] = g.sum[r];
    old_base[r] = g.base[r];
  }
  for (int n = 0; n < p_.probes && !g.first; ++n) {
    if (sum_rule) {
      for (int r = 0; r < kRows; ++r) g.sum[r] = g.probe_sum[n * kRows + r];
    }
    const float lambda = p_.probe_lambdas[n];
    const Reference ref = make_reference(g, tile_max, joined);
    const F limit = set1(sum_rule ? lambda : log2_lambda(lambda));
    for (int i = 0; i < kept.count; ++i) {
      const int b = kept.block[i];
      bool skip = true;
      for (int r = 0; r < kVecs; ++r) {
        skip = skip && all(operator_or(less(margin(ref, b, r), limit), abstains(g, mask, partial, b, r)));
      }
      if (!skip) continue;
      skipped[b] |= 1U << n;
      add_counter(g.probe_skipped + n, visible_scores(g, mask, partial, b));
    }
  }
  for (int r = 0; r < kRows; ++r) g.sum[r] = dense_sum[r];
  weigh_kept(g, joined, scale, addend);
  if (!sum_rule) return;
  for (int r = 0; r < kVecs; ++r) {
    const F now = load(g.base + r * kLanes);
    const F base = select(less_equal(now, set1(-kInfinity)), zero(), now);
    const F rescale = exp2(load(old_base + r * kLanes) - base);
    F block_sum[kBlocks];
    for (int i = 0; i < kept.count; ++i) {
      const float* weights = tile_->scores + kept.block[i] * kBlock * kRows + r * kLanes;
      F sum = zero();
      for (int j = 0; j < kBlock; ++j) sum = sum + load(weights + j * kRows);
      block_sum[kept.block[i]] = sum;
    }
    for (int n = 0; n < p_.probes; ++n) {
      float* at = g.probe_sum + n * kRows + r * kLanes;
      F sum = load(at) * rescale;
      for (int i = 0; i < kept.count; ++i) {
        if ((skipped[kept.block[i]] >> n & 1U) == 0) sum = sum + block_sum[kept.block[i]];
      }
      store(at, sum);
    }
  }
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
