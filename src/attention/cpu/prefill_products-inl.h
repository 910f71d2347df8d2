// Prefill: the two matrix products of a tile, S = K.Q^T and O = O * rescale + P.V.
//
// Each FMA multiplies a broadcast element with a vector, and a broadcast is a load. With 8 lanes a group of 16 rows
// uses the broadcast of a key or value element twice. With 16 lanes it would use it once, and two loads a cycle for two
// FMAs leave nothing to spare (227 instead of 273 GFLOP/s on two Xeon cores). So there two groups are scored together,
// and P.V, whose blocks the groups keep each for itself, has elements in the lanes instead of rows: 8 broadcast weights
// x 2 vectors of values.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

// Floats from one key's (value's) row to the next. Without the 64 bytes of padding the rows of a tile, 512 bytes apart,
// would share 8 of a 32 KB cache's 64 sets.
template <int kD>
inline constexpr int kRowStride = kD + 16;

/// acc[column][group, vec] += sum over k of a[group][k][row] * b[k * b_k + column * kColumnStride]; a[group] holds 16
/// rows for each k.
template <int kN, int kColumnStride, int kG>
LONGHAUL_INLINE void outer_products(const float* const (&a)[kG], const float* b, int64_t b_k, int count,
                                    F (&acc)[kN][kG * kVecs]) {
  for (int k = 0; k < count; ++k) {
    F rows[kG * kVecs];
#pragma GCC unroll 8
    for (int r = 0; r < kG * kVecs; ++r) rows[r] = load(a[r / kVecs] + k * kRows + r % kVecs * kLanes);
#pragma GCC unroll 32
    for (int n = 0; n < kN; ++n) {
      const F column = set1(b[n * kColumnStride]);
#pragma GCC unroll 8
      for (int r = 0; r < kG * kVecs; ++r) acc[n][r] = fma(column, rows[r], acc[n][r]);
    }
    b += b_k;
  }
}

/// Scores of kN keys from `key` on.
template <int kN, int kD, int kG>
LONGHAUL_INLINE void score_columns(const float* const (&query)[kG], const float* keys, int key,
                                   float* const (&scores)[kG]) {
  F acc[kN][kG * kVecs];
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kG * kVecs; ++r) acc[n][r] = zero();
  outer_products<kN, kRowStride<kD>, kG>(query, keys + key * kRowStride<kD>, 1, kD, acc);
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kG * kVecs; ++r) store(scores[r / kVecs] + (key + n) * kRows + r % kVecs * kLanes, acc[n][r]);
}

/// Scores of a whole tile. Not inlined, as add_values(): once per head size instead of once per mode and head size, a
/// third of the compile time.
template <int kD, int kG>
__attribute__((noinline)) void score_tile(const float* const (&query)[kG], const float* keys,
                                          float* const (&scores)[kG]) {
  constexpr int kN = kColumns / kG;
  int key = 0;
  for (; key + kN <= kTile; key += kN) score_columns<kN, kD, kG>(query, keys, key, scores);
  if constexpr (kTile % kN > 0) score_columns<kTile % kN, kD, kG>(query, keys, key, scores);
}

/// Where a group keeps element c of row r's output: rows in the lanes, as the scores, or elements in the lanes.
template <int kDv>
LONGHAUL_INLINE int output_index(int r, int c) {
  return kElementsInLanes ? r * kDv + c : c * kRows + r;
}

/// Rows in the lanes: kN columns of the output from `column` on.
template <int kN, int kDv>
LONGHAUL_INLINE void add_columns(const Addend& group, const float* values, int column) {
  float* output = group.output + column * kRows;
  F acc[kN][kVecs];
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kVecs; ++r) acc[n][r] = load(output + n * kRows + r * kLanes) * group.rescale[r];
  for (int i = 0; i < group.kept.count; ++i) {
    const int key = group.kept.block[i] * kBlock;
    const float* weights[1] = {group.weights + key * kRows};
    outer_products<kN, 1, 1>(weights, values + key * kRowStride<kDv> + column, kRowStride<kDv>, kBlock, acc);
  }
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n)
    for (int r = 0; r < kVecs; ++r) store(output + n * kRows + r * kLanes, acc[n][r]);
}

/// Elements in the lanes: rows [row, row + 8) x 2 vectors of elements from `column` on.
template <int kDv>
LONGHAUL_INLINE void add_rows(const Addend& group, const float (&rescale)[kRows], const float* values, int row,
                              int column) {
  constexpr int kHalf = kRows / 2;
  float* output = group.output + row * kDv + column;
  F acc[kHalf][2];
#pragma GCC unroll 8
  for (int r = 0; r < kHalf; ++r) {
    for (int n = 0; n < 2; ++n) acc[r][n] = load(output + r * kDv + n * kLanes) * set1(rescale[row + r]);
  }
  for (int i = 0; i < group.kept.count; ++i) {
    const int key = group.kept.block[i] * kBlock;
    const float* value = values + key * kRowStride<kDv> + column;
    const float* weight = group.weights + key * kRows + row;
    for (int k = 0; k < kBlock; ++k, value += kRowStride<kDv>, weight += kRows) {
      const F v[2] = {load(value), load(value + kLanes)};
#pragma GCC unroll 8
      for (int r = 0; r < kHalf; ++r) {
        const F w = set1(weight[r]);
        acc[r][0] = fma(w, v[0], acc[r][0]);
        acc[r][1] = fma(w, v[1], acc[r][1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHalf; ++r) {
    for (int n = 0; n < 2; ++n) store(output + r * kDv + n * kLanes, acc[r][n]);
  }
}

template <int kDv>
__attribute__((noinline)) void add_values(const Addend& group, const float* values) {
  if constexpr (kElementsInLanes) {
    alignas(64) float rescale[kRows];
    for (int r = 0; r < kVecs; ++r) store(rescale + r * kLanes, group.rescale[r]);
    for (int column = 0; column < kDv; column += 2 * kLanes) {
      for (int row = 0; row < kRows; row += kRows / 2) add_rows<kDv>(group, rescale, values, row, column);
    }
  } else {
    int column = 0;
    for (; column + kColumns <= kDv; column += kColumns) add_columns<kColumns, kDv>(group, values, column);
    if constexpr (kDv % kColumns > 0) add_columns<kDv % kColumns, kDv>(group, values, column);
  }
}

/// Keys and values of the tile at hand in fp32, converted once for all groups of the item.
template <int kD, int kDv>
class Products {
 public:
  static constexpr bool kLateScale = false;    // the query is stored scaled
  static constexpr bool kScoresAhead = false;  // nothing else runs beside a group's weights
  static constexpr int kTogether = LONGHAUL_ISA::kTogether;
  static constexpr int kItemRows = kPrefillItemRows;
  static constexpr int kQueryFloats = kD * kRows, kPendingFloats = 0;  // of a group
  static constexpr size_t kScratchFloats = kTile * (kRowStride<kD> + kRowStride<kDv>);

  explicit Products(float* scratch) : keys_(scratch), values_(keys_ + kTile * kRowStride<kD>) {}

  /// Query row r of a group; null where it does not exist.
  static void put_query(float* query, int r, const float* row, float scale) {
    for (int c = 0; c < kD; ++c) query[c * kRows + r] = row == nullptr ? 0 : row[c] * scale;
  }
  static int output_index(int r, int c) { return LONGHAUL_ISA::output_index<kDv>(r, c); }

  static void start_group(Group&) {}

  void read_keys(const PrefillTile& tile) {
    for (int j = 0; j < kTile; ++j) tile.read_key(j, kD, keys_ + j * kRowStride<kD>);
    for (bool& read : values_read_) read = false;
  }
  template <int kG>
  void score(const float* const (&query)[kG], float* const (&scores)[kG]) const {
    score_tile<kD, kG>(query, keys_, scores);
  }

  /// What the running maximum makes of the point that the weights refer to.
  static F next_base(F, F max) { return max; }
  /// Turns the scores of the kept blocks into weights and adds them to `sum`.
  template <bool kKeepWeights>
  void weigh(Group&, Addend& addend, float* scores, F, const F (&base)[kVecs], F (&sum)[kVecs]) const {
    for (int i = 0; i < addend.kept.count; ++i) {
      float* weights = scores + addend.kept.block[i] * kBlock * kRows;
      for (int j = 0; j < kBlock; ++j) {
        for (int r = 0; r < kVecs; ++r) {
          float* at = weights + j * kRows + r * kLanes;
          const F w = exp2(load(at) - base[r]);
          store(at, w);
          sum[r] = sum[r] + w;
        }
      }
    }
    addend.weights = scores;
  }
  static float weight(const Group&, const Addend& addend, int j, int r) { return addend.weights[j * kRows + r]; }

  /// Converts the blocks that nobody has needed yet; true if one of them holds a value that is not finite.
  bool read_values(Group&, const PrefillTile& tile, const Addend& addend) {
    bool bad = false;
    for (int i = 0; i < addend.kept.count; ++i) {
      const int b = addend.kept.block[i];
      if (!values_read_[b]) read_block(tile, b);
      bad = bad || values_bad_[b];
    }
    return bad;
  }
  bool values_read(int block) const { return values_read_[block]; }
  const float* value_row(const PrefillTile&, int j) const { return values_ + j * kRowStride<kDv>; }
  void add(Group&, const Addend& addend) const { add_values<kDv>(addend, values_); }

 private:
  void read_block(const PrefillTile& tile, int b) {
    values_read_[b] = true;
    F bad = zero();
    for (int j = b * kBlock; j < (b + 1) * kBlock; ++j) {
      float* row = values_ + j * kRowStride<kDv>;
      tile.read_value(j, kDv, row);
      for (int c = 0; c < kDv; c += kLanes) bad = fma(load(row + c), zero(), bad);
    }
    values_bad_[b] = any(is_nan(bad));
  }

  float* keys_;    // [64][kRowStride]
  float* values_;  // [64][kRowStride]
  bool values_read_[kBlocks] = {};
  bool values_bad_[kBlocks] = {};
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
