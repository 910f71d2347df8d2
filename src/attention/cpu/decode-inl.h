// Decode, one work item: all rows (query tokens x query heads of a KV head) over one part of a request's keys, newest tile first.
//
// Memory-bound: every key byte is read once, every value byte of a kept block once, straight from the cache's own type. Elements
// lie in the vector lanes, so few rows still use whole vectors. P.V of a tile runs after the scores of the next one: by then the
// values of the kept blocks, known only after the vote, have been fetched while the scores were computed.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

inline constexpr int kPair = 2 * kLanes;  // elements of load_pair()
inline constexpr int kCacheLine = 64;

/// Where element e of a pair lands in {first, second}.
template <class T>
LONGHAUL_INLINE int pair_lane(int e) {
  return std::is_same_v<T, Bf16> ? (e % 2) * kLanes + e / 2 : e;
}

/// The rows of one KV head; row = token * group + head.
struct DecodeRow {
  int head;
  int token;
  KeyRange keys;
  float lambda, log2_lambda;
  float max;            // largest score met (log2 units), seeded from the newest tile
  float sum;            // kept mass of this part, relative to 2^max
  float reference_sum;  // the same with the seed's mass
  float rescale;        // of the output before the pending tile joins
  bool poisoned;        // has met NaN or +inf, in the tile at hand or before: keeps everything
  // Of the tile at hand.
  float tile_max;
  float block_max[kBlocks];
  bool block_seen[kBlocks];  // the row sees a key of the block
  bool block_bad[kBlocks];   // and a score that is not finite among them
};

/// A tile whose weights are known and whose values still have to be added.
struct PendingTile {
  int64_t begin = 0;
  KeyRange keys;       // of the tile, that exist in this part
  bool uniform = true;  // every row sees all of `keys`
  bool kept[kBlocks] = {};
  bool any = false;
};

template <class T>
class DecodeRun {
 public:
  DecodeRun(const AttentionParams& p, const DecodeItem& item, float* scratch) : p_(p), item_(item) {
    q_length_ = static_cast<int>(p.q_length(item.request));
    kv_length_ = p.kv_length(item.request);
    rows_ = q_length_ * p.group;
    row_ = reinterpret_cast<DecodeRow*>(scratch);
    scratch += rows_ * sizeof(DecodeRow) / sizeof(float);
    query_ = scratch;
    scratch += rows_ * p.d;
    output_ = scratch;
    scratch += rows_ * p.dv;
    for (float*& weights : weights_) {
      weights = scratch;
      scratch += rows_ * kTile;
    }
    line_ = scratch;
    scratch += p.d + p.dv;
    probe_sum_ = scratch;  // [probes][rows]
  }

  static size_t scratch_floats(const AttentionParams& p, int rows) {
    return rows * (sizeof(DecodeRow) / sizeof(float) + p.d + p.dv + 2 * kTile + p.probes) + p.d + p.dv;
  }

  void run() {
    start_rows();
    if (!item_.newest_tile.empty()) seed();
    if (!item_.keys.empty()) {
      const int64_t oldest = item_.keys.begin / kTile, newest = (item_.keys.end - 1) / kTile;
      for (int64_t tile = newest; tile >= oldest; --tile) visit_tile(tile, tile == newest, tile > oldest);
      add_pending_values();
    }
    finish();
  }

 private:
  // --- rows -----------------------------------------------------------------------------------------------------------

  void start_rows() {
    const float scale = p_.scale * p_.k_scale_of(item_.head_kv) * (p_.soft_cap > 0 ? 1.0F / p_.soft_cap : kLog2E);
    for (int i = 0; i < rows_; ++i) {
      DecodeRow& row = row_[i];
      row.token = i / p_.group;
      row.head = item_.head_kv * p_.group + i % p_.group;
      row.keys = visible_keys(kv_length_ - q_length_ + row.token, kv_length_, p_.causal, p_.window_left);
      row.lambda = p_.lambda_of(item_.request, row.head);
      row.log2_lambda = log2_lambda(row.lambda);
      row.max = -kInfinity;
      row.sum = row.reference_sum = 0;
      row.rescale = 1;
      row.poisoned = false;
      const int64_t token = p_.cu_q[item_.request] + row.token;
      read_row(p_.q, p_.q_dtype, token * p_.q_token + row.head * p_.q_head, p_.d, line_);
      const float row_scale = scale * p_.q_scale_of(row.head);
      float* query = query_ + i * p_.d;
      for (int c = 0; c < p_.d; ++c) query[c / kPair * kPair + pair_lane<T>(c % kPair)] = line_[c] * row_scale;
    }
    for (int i = 0; i < rows_ * p_.dv; ++i) output_[i] = 0;
    for (int i = 0; i < rows_ * p_.probes; ++i) probe_sum_[i] = 0;
  }

  /// The reference of a part that is not the newest starts from the newest tile of the whole request.
  void seed() {
    const int64_t begin = item_.newest_tile.begin / kTile * kTile;
    locate(key_, p_.k, p_.k_page, p_.k_token, p_.k_head, begin, item_.newest_tile);
    const PendingTile nothing;
    score_tile(weights_[0], begin, item_.newest_tile, nothing, false);
    for (int i = 0; i < rows_; ++i) {
      DecodeRow& row = row_[i];
      const float* scores = weights_[0] + i * kTile;
      float m = -kInfinity, sum = 0;
      for (int j = 0; j < kTile; ++j) m = scores[j] > m ? scores[j] : m;
      const F base = set1(m > -kInfinity ? m : 0.0F);
      F total = zero();
      for (int j = 0; j < kTile; j += kLanes) total = total + exp2(load(scores + j) - base);
      sum = sum_lanes(total);
      row.max = m;
      row.reference_sum = sum;
      row.poisoned = !(sum < kInfinity) || m == kInfinity;
      for (int n = 0; n < p_.probes; ++n) probe_sum_[n * rows_ + i] = sum;
    }
  }

  // --- one tile -------------------------------------------------------------------------------------------------------

  void visit_tile(int64_t tile, bool newest_of_part, bool more) {
    const int64_t begin = tile * kTile;
    PendingTile now;
    now.begin = begin;
    now.keys = clip(item_.keys, begin);
    locate(key_, p_.k, p_.k_page, p_.k_token, p_.k_head, begin, now.keys);
    if (more) {
      next_keys_ = clip(item_.keys, begin - kTile);
      locate(next_key_, p_.k, p_.k_page, p_.k_token, p_.k_head, begin - kTile, next_keys_);
      next_begin_ = begin - kTile;
    }
    float* scores = weights_[current_];
    now.uniform = score_tile(scores, begin, now.keys, pending_, more);
    add_pending_values();  // before weigh_tile(), which sets the next rescale
    const bool always = newest_of_part && item_.newest_tile.empty();
    weigh_tile(scores, now, always);
    if (!now.any) return;
    locate(value_, p_.v, p_.v_page, p_.v_token, p_.v_head, begin, now.keys);
    pending_ = now;
    current_ ^= 1;
  }

  static KeyRange clip(KeyRange keys, int64_t tile_begin) {
    return {keys.begin > tile_begin ? keys.begin : tile_begin, keys.end < tile_begin + kTile ? keys.end : tile_begin + kTile};
  }

  /// Addresses of the tile's rows; walks the page table once per page.
  void locate(const T* (&row)[kTile], const void* data, int64_t page_stride, int64_t token_stride, int64_t head_stride,
              int64_t tile_begin, KeyRange keys) const {
    const T* base = static_cast<const T*>(data) + item_.head_kv * head_stride;
    if (p_.page_size == 0) {
      for (int64_t t = keys.begin; t < keys.end; ++t) {
        row[t - tile_begin] = base + (p_.cu_kv[item_.request] + t) * token_stride;
      }
      return;
    }
    const int32_t* table = p_.page_table + item_.request * p_.page_table_request;
    for (int64_t t = keys.begin; t < keys.end;) {
      const int64_t page = t / p_.page_size, page_end = (page + 1) * p_.page_size;
      const T* at = base + table[page] * page_stride + (t - page * p_.page_size) * token_stride;
      for (; t < keys.end && t < page_end; ++t, at += token_stride) row[t - tile_begin] = at;
    }
  }

  /// scores[row][64] in log2 units, -inf where not visible; true when every row sees all of `keys`. Meanwhile fetches the next
  /// tile's keys and the values of the tile still pending.
  bool score_tile(float* scores, int64_t begin, KeyRange keys, const PendingTile& pending, bool more) {
    const int low = static_cast<int>(keys.begin - begin), high = static_cast<int>(keys.end - begin);
    int row = 0;
    for (; row + 4 <= rows_; row += 4) score_rows<4>(scores, row, low, high, row == 0, pending, more);
    if (row + 2 <= rows_) {
      score_rows<2>(scores, row, low, high, row == 0, pending, more);
      row += 2;
    }
    if (row < rows_) score_rows<1>(scores, row, low, high, row == 0, pending, more);
    if (p_.soft_cap > 0) {
      const F to_log2 = set1(p_.soft_cap * kLog2E);
      for (int i = 0; i < rows_ * kTile; i += kLanes) store(scores + i, tanh(load(scores + i)) * to_log2);
    }
    bool uniform = true;
    for (int i = 0; i < rows_; ++i) {
      const KeyRange seen = row_[i].keys;
      const int from = seen.begin > keys.begin ? static_cast<int>((seen.begin < keys.end ? seen.begin : keys.end) - begin) : low;
      const int to = seen.end < keys.end ? static_cast<int>((seen.end > keys.begin ? seen.end : keys.begin) - begin) : high;
      uniform = uniform && from == low && to == high;
      for (int j = 0; j < from; ++j) scores[i * kTile + j] = -kInfinity;
      for (int j = to > from ? to : from; j < kTile; ++j) scores[i * kTile + j] = -kInfinity;
    }
    return uniform;
  }

  /// kR rows against keys [low, high): kLanes sums at a time, reduced together.
  template <int kR>
  void score_rows(float* scores, int row, int low, int high, bool fetch, const PendingTile& pending, bool more) {
    constexpr int kKeys = kLanes / kR > 0 ? kLanes / kR : 1;
    const float* query = query_ + row * p_.d;
    for (int key = low; key < high; key += kKeys) {
      const T* at[kKeys];
      for (int j = 0; j < kKeys; ++j) at[j] = key_[key + j < high ? key + j : high - 1];
      F acc[kR * kKeys];
#pragma GCC unroll 16
      for (int i = 0; i < kR * kKeys; ++i) acc[i] = zero();
      for (int c = 0; c < p_.d; c += kPair) {
        F first[kKeys], second[kKeys];
#pragma GCC unroll 16
        for (int j = 0; j < kKeys; ++j) load_pair(at[j] + c, first[j], second[j]);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
          const F q0 = load(query + r * p_.d + c), q1 = load(query + r * p_.d + c + kLanes);
#pragma GCC unroll 16
          for (int j = 0; j < kKeys; ++j) {
            acc[r * kKeys + j] = fma(q0, first[j], acc[r * kKeys + j]);
            acc[r * kKeys + j] = fma(q1, second[j], acc[r * kKeys + j]);
          }
        }
      }
      alignas(64) float sums[kLanes];
      store(sums, sum_each(acc));
      const int count = high - key < kKeys ? high - key : kKeys;
      for (int r = 0; r < kR; ++r) {
        for (int j = 0; j < count; ++j) scores[(row + r) * kTile + key + j] = sums[r * kKeys + j];
      }
      if (fetch) {
        for (int j = key; j < key + count; ++j) fetch_ahead(j, pending, more);
      }
    }
  }

  void fetch_ahead(int j, const PendingTile& pending, bool more) const {
    if (more && next_begin_ + j >= next_keys_.begin) {
      const char* line = reinterpret_cast<const char*>(next_key_[j]);
      for (size_t b = 0; b < p_.d * sizeof(T); b += kCacheLine) __builtin_prefetch(line + b);
    }
    if (pending.any && pending.kept[j / kBlock] && pending.begin + j >= pending.keys.begin && pending.begin + j < pending.keys.end) {
      const char* line = reinterpret_cast<const char*>(value_[j]);
      for (size_t b = 0; b < p_.dv * sizeof(T); b += kCacheLine) __builtin_prefetch(line + b);
    }
  }

  // --- votes and weights ----------------------------------------------------------------------------------------------

  void weigh_tile(float* scores, PendingTile& tile, bool always);
  void statistics(DecodeRow& row, const float* scores, const PendingTile& tile) const;
  bool row_keeps(const DecodeRow& row, int b, float lambda, float log2_lambda, float reference_sum) const;
  void add_weights(DecodeRow& row, float* scores, const PendingTile& tile) const;
  int64_t visible_scores(const PendingTile& tile, int b) const;
  void record(const PendingTile& tile, const bool (&visible)[kBlocks]) const;
  void probe(const PendingTile& tile, uint32_t (&skipped)[kBlocks]) const;
  void carry_probe_sums(const float* scores, const uint32_t (&skipped)[kBlocks]);

  // --- values ---------------------------------------------------------------------------------------------------------

  void add_pending_values() {
    if (!pending_.any) return;
    const float* weights = weights_[current_ ^ 1];
    const int low = static_cast<int>(pending_.keys.begin - pending_.begin);
    const int high = static_cast<int>(pending_.keys.end - pending_.begin);
    if (pending_.uniform) {
      int row = 0;
      for (; row + 4 <= rows_; row += 4) add_values<4>(weights, row, low, high);
      if (row + 2 <= rows_) {
        add_values<2>(weights, row, low, high);
        row += 2;
      }
      if (row < rows_) add_values<1>(weights, row, low, high);
    } else {
      // A row must not meet values it does not see: 0 x NaN is NaN.
      for (int row = 0; row < rows_; ++row) {
        const KeyRange seen = row_[row].keys;
        const int64_t from = seen.begin - pending_.begin, to = seen.end - pending_.begin;
        add_values<1>(weights, row, from > low ? static_cast<int>(from < high ? from : high) : low,
                      to < high ? static_cast<int>(to > low ? to : low) : high);
      }
    }
    pending_.any = false;
  }

  /// kR rows, keys [low, high) of the kept blocks.
  template <int kR>
  void add_values(const float* weights, int row, int low, int high) {
    // As many columns as the accumulators allow; head sizes are multiples of 64.
    constexpr int kWanted = kDecodeAccumulators / (2 * kR);
    constexpr int kPairs = kWanted < 64 / kPair ? kWanted : 64 / kPair;
    static_assert(kPairs > 0 && 64 % (kPairs * kPair) == 0);
    for (int c = 0; c < p_.dv; c += kPairs * kPair) {
      F acc[kR][2 * kPairs];
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) {
        const F rescale = set1(row_[row + r].rescale);
#pragma GCC unroll 8
        for (int n = 0; n < 2 * kPairs; ++n) acc[r][n] = load(output_ + (row + r) * p_.dv + c + n * kLanes) * rescale;
      }
      for (int b = kBlocks - 1; b >= 0; --b) {
        if (!pending_.kept[b]) continue;
        const int from = b * kBlock > low ? b * kBlock : low;
        const int to = (b + 1) * kBlock < high ? (b + 1) * kBlock : high;
        for (int j = from; j < to; ++j) {
          F v[2 * kPairs];
#pragma GCC unroll 4
          for (int n = 0; n < kPairs; ++n) load_pair(value_[j] + c + n * kPair, v[2 * n], v[2 * n + 1]);
#pragma GCC unroll 4
          for (int r = 0; r < kR; ++r) {
            const F w = set1(weights[(row + r) * kTile + j]);
#pragma GCC unroll 8
            for (int n = 0; n < 2 * kPairs; ++n) acc[r][n] = fma(w, v[n], acc[r][n]);
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < 2 * kPairs; ++n) store(output_ + (row + r) * p_.dv + c + n * kLanes, acc[r][n]);
      }
    }
  }

  // --- output ---------------------------------------------------------------------------------------------------------

  void finish() {
    for (int i = 0; i < rows_; ++i) {
      const DecodeRow& row = row_[i];
      float* natural = item_.partial != nullptr ? item_.partial + static_cast<int64_t>(i) * (p_.dv + 2) : line_;
      const float* output = output_ + i * p_.dv;
      for (int c = 0; c < p_.dv; ++c) natural[c] = output[c / kPair * kPair + pair_lane<T>(c % kPair)];
      if (item_.partial != nullptr) {
        natural[p_.dv] = row.max;
        natural[p_.dv + 1] = row.sum;
      } else {
        write_result(p_, p_.cu_q[item_.request] + row.token, row.head, natural, row.max, row.sum);
      }
    }
  }

  const AttentionParams& p_;
  const DecodeItem& item_;
  int q_length_, rows_;
  int64_t kv_length_;
  DecodeRow* row_;
  float* query_;       // [rows][d], in load_pair() order, scaled
  float* output_;      // [rows][dv], in load_pair() order
  float* weights_[2];  // [rows][64]: scores, then weights, of the tile at hand and of the pending one
  int current_ = 0;
  float* line_;
  float* probe_sum_;
  PendingTile pending_;
  KeyRange next_keys_;
  int64_t next_begin_ = 0;
  const T* key_[kTile] = {};
  const T* next_key_[kTile] = {};
  const T* value_[kTile] = {};
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
