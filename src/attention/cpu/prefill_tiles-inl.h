// Prefill: the two matrix products of a tile of 64 keys on matrix tiles (AMX): bf16 x bf16, summed in fp32.
//
// Both are turned so that rows stay in the lanes, as the softmax wants them, and neither scores nor weights need
// turning:
//   S^T = K Q^T     A = 16 keys as they lie, B = the group's query, stored once in pairs of elements
//   O^T += V^T P^T  A = 16 elements x 32 keys of the turned values, B = weights in pairs of keys
// Only V is turned, once for all groups of the item. A product takes 32 keys, two blocks: what a group skipped of a
// pair has weights of 0.
//
// Weights of two tiles wait until all groups have theirs, then join the outputs together. So scores and weights find
// the keys in the first-level cache, products the values, and an output, 8 KB a group, comes from the second level and
// returns to it half as often.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

/// 2^f on [0, 1], relative error < 3e-6, exact at 0.
LONGHAUL_INLINE F weight_polynomial(F f) {
  F p = fma(f, set1(0.013426685531F), set1(0.0522424722F));
  p = fma(p, f, set1(0.241280205698F));
  p = fma(p, f, set1(0.693044844783F));
  return fma(p, f, set1(1.0F));
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END

// Needs the polynomial.
#include LONGHAUL_TILES

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

inline constexpr int kPairKeys = 2 * kBlock;         // of one product
inline constexpr int kPendingTiles = 2;              // tiles whose weights wait
inline constexpr int kPairWeights = kBlock * kRows;  // words: a pair of keys each, by row

/// Weights of a group that have not met their values yet.
struct Pending {
  uint32_t weights[kPendingTiles * kTile / kPairKeys][kPairWeights];
  const uint16_t* values[kPendingTiles * kTile / kPairKeys];  // of element 0; the next element's are kTile further
  int count;
};

template <int kD, int kDv>
class Products {
 public:
  static constexpr bool kLateScale = true, kScoresAhead = true;
  static constexpr int kItemRows = kPrefillTileItemRows;
  static constexpr int kTogether = 2;                  // tiles of scores: a group's and the next one's
  static constexpr int kQueryFloats = kD / 2 * kRows;  // pairs of elements
  static constexpr int kPendingFloats = (sizeof(Pending) + 63) / 64 * 16;
  static constexpr int kKeyFloats = kTile * kD / 2, kValueFloats = kTile * kDv / 2;
  static constexpr int kStagedFloats = kBlock * kDv / 2;
  static constexpr int kRowFloats = kD > kDv ? kD : kDv;
  static constexpr size_t kScratchFloats = kKeyFloats + kPendingTiles * kValueFloats + kStagedFloats + kRowFloats;

  explicit Products(float* scratch)
      : keys_(reinterpret_cast<uint16_t*>(scratch)),
        values_(reinterpret_cast<uint16_t*>(scratch + kKeyFloats)),
        staged_(reinterpret_cast<uint16_t*>(scratch + kKeyFloats + kPendingTiles * kValueFloats)),
        row_(scratch + kScratchFloats - kRowFloats) {
    // A block that nobody has read meets weights of 0: it must be finite.
    __builtin_memset(values_, 0, kPendingTiles * kValueFloats * sizeof(float));
  }

  static void start_group(Group& g) { pending(g).count = 0; }
  static void put_query(float* query, int r, const float* row, float) {
    uint16_t* to = reinterpret_cast<uint16_t*>(query) + 2 * r;
    for (int c = 0; c < kD; ++c) to[c / 2 * 2 * kRows + c % 2] = row == nullptr ? 0 : upper_half(row[c]);
  }
  static int output_index(int r, int c) { return c * kRows + r; }

  void read_keys(const PrefillTile& tile) {
    for (int j = 0; j < kTile; ++j) {
      uint16_t* to = keys_ + j * kD;
      if (!tile.exists(j)) {
        __builtin_memset(to, 0, kD * sizeof *to);
      } else {
        copy_row(tile.p.k, tile.p.kv_dtype, tile.key_offset(j), kD, to);
      }
    }
    fetch_values_ = true;
    for (bool& read : values_read_) {
      fetch_values_ = fetch_values_ && (read || !started_);
      read = false;
    }
    started_ = true;
    turn_ = (turn_ + 1) % kPendingTiles;
  }

  /// Asks for one of `parts` parts of a tile's rows; for values only where the tile before needed all of them.
  __attribute__((always_inline)) void fetch(const PrefillTile& tile, int part, int parts) const {
    const int64_t bytes = static_cast<int64_t>(dtype_size(tile.p.kv_dtype));
    for (int j = kTile * part / parts; j < kTile * (part + 1) / parts; ++j) {
      if (!tile.exists(j)) continue;
      const char* key = static_cast<const char*>(tile.p.k) + tile.key_offset(j) * bytes;
      for (int at = 0; at < kD * bytes; at += 64) fetch_line(key + at);
      if (!fetch_values_) continue;
      const char* value = static_cast<const char*>(tile.p.v) + tile.value_offset(j) * bytes;
      for (int at = 0; at < kDv * bytes; at += 64) fetch_line(value + at);
    }
  }

  /// A group's scores are computed a step at a time, while weigh() runs for the group before, and come out with
  /// finish_scores().
  void start_scores(const float* query, float* scores) {
    scored_query_ = query;
    scores_ = scores;
    element_ = 0;
    tiles_.template zero<0>();
    tiles_.template zero<1>();
    tiles_.template zero<2>();
    tiles_.template zero<3>();
  }
  void finish_scores() {
    if (scores_ == nullptr) return;
    while (element_ < kD) {
      score_block<0>();
      score_block<1>();
      score_block<2>();
      score_block<3>();
    }
    tiles_.template store<0>(scores_, 64);
    tiles_.template store<1>(scores_ + kBlock * kRows, 64);
    tiles_.template store<2>(scores_ + 2 * kBlock * kRows, 64);
    tiles_.template store<3>(scores_ + 3 * kBlock * kRows, 64);
    scores_ = nullptr;
  }

  /// The point that the weights refer to follows the maximum only when that has grown by more than 2^8, so that the
  /// output, which lies in memory, is hardly ever rescaled. bf16 and fp32 are as exact at 2^8 as at 1.
  static F next_base(F base, F max) { return select(less(base + set1(8.0F), max), max, base); }

  /// Turns the scores of the kept blocks into weights and adds them to `sum`, before they are rounded to bf16: then the
  /// log-sum-exp does not suffer from the rounding, and the output's error is the weights' own, half a unit at most.
  template <bool kKeepWeights>
  void weigh(Group& g, Addend& addend, float* scores, F scale, const F (&base)[kVecs], F (&sum)[kVecs]) {
    rescale(g, addend);
    place_blocks(g, addend.kept);
    for (int i = 0; i < addend.kept.count; ++i) {
      const int b = addend.kept.block[i];
      float* from = scores + b * kBlock * kRows;
      uint32_t* to = weights_ + slot_[b] * (kPairWeights / 2);
      if (scores_ != nullptr && element_ < kD) {
        weigh_block<kKeepWeights, true>(from, to, scale, base, sum);
      } else {
        weigh_block<kKeepWeights, false>(from, to, scale, base, sum);
      }
    }
  }
  float weight(const Group&, const Addend&, int j, int r) const {
    const uint32_t pair = weights_[slot_[j / kBlock] * (kPairWeights / 2) + j % kBlock / 2 * kRows + r];
    return from_upper_half(j % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
  }

  /// Turns the blocks that nobody has needed yet; true if one of those kept holds a value that is not finite.
  bool read_values(Group& g, const PrefillTile& tile, const Addend& addend) {
    bool bad = false;
    for (int i = 0; i < addend.kept.count; ++i) {
      const int b = addend.kept.block[i];
      if (!values_read_[b]) turn_values(tile, b);
      bad = bad || values_bad_[b];
    }
    if (bad) flush(g);  // the caller adds to the output itself
    return bad;
  }
  bool values_read(int block) const { return values_read_[block]; }
  const float* value_row(const PrefillTile& tile, int j) {
    tile.read_value(j, kDv, row_);
    return row_;
  }

  /// What weigh() left joins the output with flush().
  void add(Group& g, const Addend&) const {
    Pending& waiting = pending(g);
    for (int half = 0; half < 2; ++half) {
      if (!half_kept_[half]) continue;
      waiting.values[waiting.count++] = tile_values() + LONGHAUL_MUTATE(11, half, 0) * kPairKeys;
    }
  }
  /// Whether the next tile takes the place of values for which weights wait.
  bool must_flush() const { return turn_ == kPendingTiles - 1; }
  void flush(Group& g) {
    finish_scores();  // they are in the same tiles
    switch (pending(g).count) {
      case 1:
        return multiply(g, std::make_index_sequence<1>());
      case 2:
        return multiply(g, std::make_index_sequence<2>());
      case 3:
        return multiply(g, std::make_index_sequence<3>());
      case 4:
        return multiply(g, std::make_index_sequence<4>());
      default:
        return;
    }
  }

 private:
  static Pending& pending(const Group& g) { return *reinterpret_cast<Pending*>(g.pending); }
  uint16_t* tile_values() const { return values_ + turn_ * kTile * kDv; }

  static uint16_t upper_half(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
  }
  static float from_upper_half(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
  }

  /// bf16 or e4m3, both exact in bf16.
  void copy_row(const void* data, DType dtype, int64_t offset, int d, uint16_t* to) {
    if (dtype == DType::bf16) {
      __builtin_memcpy(to, static_cast<const uint16_t*>(data) + offset, d * sizeof *to);
      return;
    }
    read_row(data, dtype, offset, d, row_);
    for (int c = 0; c < d; ++c) to[c] = upper_half(row_[c]);
  }

  void turn_values(const PrefillTile& tile, int b) {
    values_read_[b] = true;
    const uint16_t* rows[kBlock];
    for (int j = 0; j < kBlock; ++j) {
      const int key = b * kBlock + j;
      uint16_t* staged = staged_ + j * kDv;
      rows[j] = staged;
      if (!tile.exists(key)) {
        __builtin_memset(staged, 0, kDv * sizeof *staged);
      } else if (tile.p.kv_dtype == DType::bf16) {
        rows[j] = static_cast<const uint16_t*>(tile.p.v) + tile.value_offset(key);
      } else {
        copy_row(tile.p.v, tile.p.kv_dtype, tile.value_offset(key), kDv, staged);
      }
    }
    uint16_t* to = tile_values() + b * kBlock;
    values_bad_[b] = turn_block<kDv>(rows, to);
    if (!values_bad_[b]) return;
    for (int c = 0; c < kDv; ++c) __builtin_memset(to + c * kTile, 0, kBlock * sizeof *to);  // may meet weights of 0
  }

  /// Block kB's part of the scores' next 32 elements.
  template <int kB>
  __attribute__((always_inline)) void score_block() {
    constexpr int kKeys = 5 + kB % 2;
    if constexpr (kB == 0) tiles_.template load<4>(scored_query_ + element_ / 2 * kRows, 64);
    tiles_.template load<kKeys>(keys_ + kB * kBlock * kD + element_, kD * 2);
    tiles_.template dot<kB, kKeys, 4>();
    if constexpr (kB == 3) element_ += 32;
  }

  /// Where each kept block's weights go. Halves of a pair that were not kept are cleared.
  void place_blocks(Group& g, const KeptBlocks& kept) {
    bool is_kept[kBlocks] = {};
    for (int i = 0; i < kept.count; ++i) is_kept[kept.block[i]] = true;
    weights_ = pending(g).weights[pending(g).count];
    int pairs = 0;
    for (int half = 0; half < 2; ++half) {
      half_kept_[half] = is_kept[2 * half] || is_kept[2 * half + 1];
      if (!half_kept_[half]) continue;
      for (int i = 0; i < 2; ++i) {
        slot_[2 * half + i] = 2 * pairs + i;
        if (is_kept[2 * half + i]) continue;
        __builtin_memset(weights_ + (2 * pairs + i) * (kPairWeights / 2), 0, kPairWeights / 2 * sizeof *weights_);
      }
      ++pairs;
    }
  }

  /// One block's weights; with kAhead a fourth of the next group's scores beside them, so that vectors and tiles work
  /// at the same time.
  template <bool kKeepWeights, bool kAhead>
  void weigh_block(float* from, uint32_t* to, F scale, const F (&base)[kVecs], F (&sum)[kVecs]) {
    weigh_pairs<kKeepWeights, kAhead>(from, to, scale, base, sum, std::make_index_sequence<kBlock / 2>());
  }
  template <bool kKeepWeights, bool kAhead, size_t... kPair>
  __attribute__((always_inline)) void weigh_pairs(float* from, uint32_t* to, F scale, const F (&base)[kVecs],
                                                  F (&sum)[kVecs], std::index_sequence<kPair...>) {
    for (int r = 0; r < kVecs; ++r) {
      F even_sum = sum[r], odd_sum = zero();
      const F minus_base = zero() - base[r];
      const auto pair = [&]<size_t kI>(std::integral_constant<size_t, kI>) __attribute__((always_inline)) {
        float* even = from + 2 * kI * kRows + r * kLanes;
        float* odd = even + kRows;
        const F w0 = weight_exp2(fma(load(even), scale, minus_base));
        const F w1 = weight_exp2(fma(load(odd), scale, minus_base));
        even_sum = even_sum + w0;
        odd_sum = odd_sum + w1;
        store_pair(to + kI * kRows + r * kLanes, w0, w1);
        if constexpr (kKeepWeights) {
          store(even, w0);
          store(odd, w1);
        }
        if constexpr (kAhead) {
          if (r == 0) score_beside<kI>();
        }
      };
      (pair(std::integral_constant<size_t, kPair>()), ...);
      sum[r] = even_sum + odd_sum;
    }
  }
  /// After pair kI of 8: one or two steps of 32 elements are spread over a block.
  template <size_t kI>
  __attribute__((always_inline)) void score_beside() {
    if constexpr (kD > 128) {
      score_block<kI % 4>();
    } else if constexpr (kI % 2 == 1) {
      score_block<kI / 2>();
    }
  }

  /// Where the base has moved: what waits belongs to the old one.
  void rescale(Group& g, Addend& addend) {
    const F one = set1(1.0F);
    bool unchanged = true;
    for (int r = 0; r < kVecs; ++r) {
      const F factor = addend.rescale[r];
      unchanged = unchanged && all(operator_and(less_equal(factor, one), less_equal(one, factor)));
    }
    if (unchanged) return;
    flush(g);
    for (int c = 0; c < kDv; ++c) {
      for (int r = 0; r < kVecs; ++r) {
        float* at = g.output + c * kRows + r * kLanes;
        store(at, load(at) * addend.rescale[r]);
      }
    }
    for (F& factor : addend.rescale) factor = one;
  }

  /// O^T += V^T P^T over the pairs of blocks that wait.
  template <size_t... kPair>
  void multiply(Group& g, std::index_sequence<kPair...>) {
    Pending& waiting = pending(g);
    (tiles_.template load<4 + kPair>(waiting.weights[kPair], 64), ...);
    for (int c = 0; c < kDv; c += 32) {
      float* output = g.output + c * kRows;
      tiles_.template load<0>(output, 64);
      tiles_.template load<1>(output + 16 * kRows, 64);
      (multiply_pair<4 + kPair>(waiting.values[kPair] + c * kTile), ...);
      tiles_.template store<0>(output, 64);
      tiles_.template store<1>(output + 16 * kRows, 64);
    }
    waiting.count = 0;
  }
  template <int kWeights>
  __attribute__((always_inline)) void multiply_pair(const uint16_t* values) {
    tiles_.template load<2>(values, kTile * 2);
    tiles_.template dot<0, 2, kWeights>();
    tiles_.template load<3>(values + 16 * kTile, kTile * 2);
    tiles_.template dot<1, 3, kWeights>();
  }

  Tiles tiles_;
  uint16_t* keys_;    // [64][kD]
  uint16_t* values_;  // [kPendingTiles][kDv][64]
  uint16_t* staged_;  // [16][kDv]
  float* row_;
  const float* scored_query_ = nullptr;
  float* scores_ = nullptr;  // of the group being scored, if any
  int element_ = 0;          // of its query, the next one to multiply
  int turn_ = kPendingTiles - 1;
  uint32_t* weights_ = nullptr;  // of the group at hand
  int slot_[kBlocks] = {};       // where its blocks are among them
  bool half_kept_[2] = {};
  bool started_ = false, fetch_values_ = true;
  bool values_read_[kBlocks] = {};
  bool values_bad_[kBlocks] = {};
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
