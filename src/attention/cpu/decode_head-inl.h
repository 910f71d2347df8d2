// Decode, one KV head of an item: its rows (query tokens x query heads), their scores against a tile and the sums of
// its values.
//
// Elements lie in the vector lanes, so few rows still use whole vectors, and keys and values are read straight from the
// cache's own type.
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

/// Where a tile's rows lie: of the item's first head; the others' lie their head stride further. Rows outside `keys`
/// repeat one inside: they may be read, what comes of them is not used.
template <class T>
struct TileRows {
  int64_t begin = 0;
  KeyRange keys;  // that exist in this part
  const T* row[kTile] = {};

  int low() const { return static_cast<int>(keys.begin - begin); }
  int high() const { return static_cast<int>(keys.end - begin); }
};

/// Brings later rows into the cache while the rows at hand are used; see decode-inl.h.
template <class T>
class DecodeFetch;

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
  int from, to;  // the keys it sees
  float tile_max;
  float threshold;
};

/// What the rows of a head keep of a tile.
struct KeptTile {
  bool uniform = true;  // every row sees all keys of the tile that exist
  bool any = false;
  bool kept[kBlocks] = {};
};

template <class T>
class DecodeHead {
 public:
  DecodeHead(const AttentionParams& p, const DecodeItem& item, int head_kv, float* scratch)
      : p_(p), item_(item), head_kv_(head_kv) {
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

  static int64_t scratch_floats(const AttentionParams& p, int rows) {
    const int64_t row_floats = sizeof(DecodeRow) / sizeof(float) + p.d + p.dv + 2 * kTile + p.probes;
    return (rows * row_floats + p.d + p.dv + 15) / 16 * 16;
  }

  /// A part that is not the newest starts its reference from the newest tile of the whole request, `newest`; null
  /// otherwise.
  void start(const TileRows<T>* newest) {
    start_rows();
    if (LONGHAUL_MUTATE(6, newest != nullptr, false)) seed(*newest);
  }

  /// Scores of every row against the tile. Fetches ahead meanwhile.
  void score(const TileRows<T>& tile, DecodeFetch<T>& fetch) {
    now_.uniform = score_tile(weights_[current_], tile, &fetch);
  }

  /// Votes, and turns the scores of kept blocks into weights. `always`: nothing may be skipped.
  void weigh(const TileRows<T>& tile, bool always) {
    weigh_tile(weights_[current_], tile, always);
    pending_ = now_;
    if (now_.any) current_ ^= 1;
  }

  /// What the tile weighed last keeps, until add_values().
  const KeptTile& pending() const { return pending_; }

  /// Adds the values of the tile weighed last. Fetches ahead meanwhile.
  void add_values(const TileRows<T>& tile, DecodeFetch<T>& fetch) {
    if (pending_.any) add_pending_values(tile, fetch);
    pending_.any = false;
  }

  void finish() {
    const int64_t row_floats = p_.dv + 2;
    for (int i = 0; i < rows_; ++i) {
      const DecodeRow& row = row_[i];
      float* natural = line_;
      if (item_.partial != nullptr)
        natural = item_.partial + (head_kv_ - item_.head_begin) * item_.partial_head + i * row_floats;
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

 private:
  // --- rows ---

  void start_rows() {
    const float scale = p_.scale * p_.k_scale_of(head_kv_) * (p_.soft_cap > 0 ? 1.0F / p_.soft_cap : kLog2E);
    for (int i = 0; i < rows_; ++i) {
      DecodeRow& row = row_[i];
      row.token = i / p_.group;
      row.head = head_kv_ * p_.group + i % p_.group;
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

  void seed(const TileRows<T>& newest) {
    score_tile(weights_[0], newest, nullptr);
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

  // --- one tile ---

  /// scores[row][64] in log2 units, -inf where not visible; true when every row sees all keys of the tile that exist.
  bool score_tile(float* scores, const TileRows<T>& tile, DecodeFetch<T>* fetch) {
    int row = 0;
    for (; row + 4 <= rows_; row += 4) score_rows<4>(scores, row, tile, row == 0 ? fetch : nullptr);
    if (row + 2 <= rows_) {
      score_rows<2>(scores, row, tile, row == 0 ? fetch : nullptr);
      row += 2;
    }
    if (row < rows_) score_rows<1>(scores, row, tile, row == 0 ? fetch : nullptr);
    if (p_.soft_cap > 0) {
      const F to_log2 = set1(LONGHAUL_MUTATE(10, p_.soft_cap * kLog2E, p_.soft_cap));
      for (int i = 0; i < rows_ * kTile; i += kLanes) store(scores + i, tanh(load(scores + i)) * to_log2);
    }
    bool uniform = true;
    for (int i = 0; i < rows_; ++i) {
      int from, to;
      seen_in_tile(row_[i], tile, from, to);
      uniform = uniform && from == tile.low() && to == tile.high();
      for (int j = 0; j < from; ++j) scores[i * kTile + j] = -kInfinity;
      for (int j = to; j < kTile; ++j) scores[i * kTile + j] = -kInfinity;
    }
    return uniform;
  }

  /// Keys [from, to) of the tile that the row sees; from == to if none.
  static void seen_in_tile(const DecodeRow& row, const TileRows<T>& tile, int& from, int& to) {
    const int64_t begin = row.keys.begin > tile.keys.begin ? row.keys.begin : tile.keys.begin;
    const int64_t end = row.keys.end < tile.keys.end ? row.keys.end : tile.keys.end;
    from = static_cast<int>((begin < tile.keys.end ? begin : tile.keys.end) - tile.begin);
    to = end > begin ? static_cast<int>(end - tile.begin) : from;
  }

  /// kR rows against the tile, a group of kKeys keys at a time whose kR x kKeys sums are reduced together.
  template <int kR>
  void score_rows(float* scores, int row, const TileRows<T>& tile, DecodeFetch<T>* fetch) {
    constexpr int kKeys = kLanes / kR > 0 ? kLanes / kR : 1;
    const float* query = query_ + row * p_.d;
    const int d = p_.d, high = tile.high();
    const int64_t head = (head_kv_ - item_.head_begin) * p_.k_head;
    for (int key = tile.low() / kKeys * kKeys; key < high; key += kKeys) {
      if (fetch != nullptr) {
#pragma GCC unroll 16
        for (int j = 0; j < kKeys; ++j) fetch->while_scoring();
      }
      const T* at[kKeys];
#pragma GCC unroll 16
      for (int j = 0; j < kKeys; ++j) at[j] = tile.row[key + j] + head;
      F acc[kR * kKeys];
#pragma GCC unroll 16
      for (int i = 0; i < kR * kKeys; ++i) acc[i] = zero();
      for (int c = 0; c < d; c += kPair) {
        F first[kKeys], second[kKeys];
#pragma GCC unroll 16
        for (int j = 0; j < kKeys; ++j) load_pair(at[j] + c, first[j], second[j]);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
          const F q0 = load(query + r * d + c), q1 = load(query + r * d + c + kLanes);
#pragma GCC unroll 16
          for (int j = 0; j < kKeys; ++j) {
            acc[r * kKeys + j] = fma(q0, first[j], acc[r * kKeys + j]);
            acc[r * kKeys + j] = fma(q1, second[j], acc[r * kKeys + j]);
          }
        }
      }
      alignas(64) float sums[kLanes];
      store(sums, sum_each(acc));
      for (int r = 0; r < kR; ++r)
        __builtin_memcpy(scores + (row + r) * kTile + key, sums + r * kKeys, kKeys * sizeof(float));
    }
  }

  // --- votes and weights: decode_votes-inl.h ---

  void weigh_tile(float* scores, const TileRows<T>& tile, bool always);
  void measure(DecodeRow& row, const float* scores, const TileRows<T>& tile) const;
  bool sees(const DecodeRow& row, int b) const;
  float threshold(const DecodeRow& row, float lambda, float log2_lambda, float reference_sum) const;
  bool keeps(const DecodeRow& row, const float* scores, int b, float threshold) const;
  void add_weights(DecodeRow& row, float* scores) const;
  int64_t visible_scores(int b) const;
  void record(const TileRows<T>& tile, const bool (&visible)[kBlocks]) const;
  void probe(const float* tile_scores, uint32_t (&skipped)[kBlocks]) const;
  void carry_probe_sums(const float* scores, const uint32_t (&skipped)[kBlocks]);

  // --- values ---

  void add_pending_values(const TileRows<T>& tile, DecodeFetch<T>& fetch) {
    const float* weights = weights_[current_ ^ 1];
    if (pending_.uniform) {
      int row = 0;
      for (; row + 4 <= rows_; row += 4)
        add_rows<4>(weights, row, tile, tile.low(), tile.high(), row == 0 ? &fetch : nullptr);
      if (row + 2 <= rows_) {
        add_rows<2>(weights, row, tile, tile.low(), tile.high(), row == 0 ? &fetch : nullptr);
        row += 2;
      }
      if (row < rows_) add_rows<1>(weights, row, tile, tile.low(), tile.high(), row == 0 ? &fetch : nullptr);
    } else {
      // A row must not meet values it does not see: 0 x NaN is NaN.
      for (int row = 0; row < rows_; ++row) {
        int from, to;
        seen_in_tile(row_[row], tile, from, to);
        add_rows<1>(weights, row, tile, from, to, row == 0 ? &fetch : nullptr);
      }
    }
  }

  /// kR rows: output = output * rescale + weights . values, over keys [low, high) of the kept blocks.
  template <int kR>
  void add_rows(const float* weights, int row, const TileRows<T>& tile, int low, int high, DecodeFetch<T>* fetch) {
    // As many columns as the accumulators allow; head sizes are multiples of 64.
    constexpr int kWanted = kDecodeAccumulators / (2 * kR);
    constexpr int kPairs = kWanted < 64 / kPair ? kWanted : 64 / kPair;
    static_assert(kPairs > 0 && 64 % (kPairs * kPair) == 0);
    const int64_t head = (head_kv_ - item_.head_begin) * p_.v_head;
    const int passes = p_.dv / (kPairs * kPair);
    const float* weight[kR];
    for (int r = 0; r < kR; ++r) weight[r] = weights + (row + r) * kTile;
    for (int pass = 0; pass < passes; ++pass) {
      float* output = output_ + row * p_.dv + pass * kPairs * kPair;
      const int64_t column = head + pass * kPairs * kPair;
      F acc[kR][2 * kPairs];
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) {
        const F rescale = set1(row_[row + r].rescale);
#pragma GCC unroll 8
        for (int n = 0; n < 2 * kPairs; ++n) acc[r][n] = load(output + r * p_.dv + n * kLanes) * rescale;
      }
      for (int b = kBlocks - 1; b >= 0; --b) {
        if (!pending_.kept[b]) continue;
        if (fetch != nullptr) fetch->while_adding(head_kv_ - item_.head_begin, b, pass, passes);
        const int from = b * kBlock > low ? b * kBlock : low;
        const int to = (b + 1) * kBlock < high ? (b + 1) * kBlock : high;
        for (int j = from; j < to; ++j) {
          const T* value = tile.row[j] + column;
          F v[2 * kPairs];
#pragma GCC unroll 4
          for (int n = 0; n < kPairs; ++n) load_pair(value + n * kPair, v[2 * n], v[2 * n + 1]);
#pragma GCC unroll 4
          for (int r = 0; r < kR; ++r) {
            const F w = set1(weight[r][j]);
#pragma GCC unroll 8
            for (int n = 0; n < 2 * kPairs; ++n) acc[r][n] = fma(w, v[n], acc[r][n]);
          }
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < 2 * kPairs; ++n) store(output + r * p_.dv + n * kLanes, acc[r][n]);
      }
    }
  }

  const AttentionParams& p_;
  const DecodeItem& item_;
  int head_kv_, q_length_, rows_;
  int64_t kv_length_;
  DecodeRow* row_;
  float* query_;       // [rows][d], in load_pair() order, scaled
  float* output_;      // [rows][dv], in load_pair() order
  float* weights_[2];  // [rows][64]: scores, then weights, of the tile at hand and of the pending one
  int current_ = 0;
  float* line_;
  float* probe_sum_;
  KeptTile now_, pending_;
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
