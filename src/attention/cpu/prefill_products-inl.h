// Prefill: the two matrix products of a tile, S = K.Q^T and O = O * rescale + V^T.P^T, for one voting group or for
// kTogether at once.
//
// Each FMA multiplies one broadcast element of K or V with 16 rows. With 8 lanes a group of 16 rows uses a broadcast
// twice; with 16 lanes only once, and two loads a cycle for two FMAs leave nothing to spare, so there two groups share
// it. A group's bits do not depend on its company: its sums run in the same order either way.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

inline constexpr int kRows = 16;  // rows of a voting group
inline constexpr int kVecs = kRows / kLanes;
static_assert(kRows == kCpuPrefill.group_rows);
// Floats from one key's (value's) row to the next. Without the 64 bytes of padding the rows of a tile, 512 bytes apart,
// would share 8 of a 32 KB cache's 64 sets.
template <int kD>
inline constexpr int kRowStride = kD + 16;

/// acc[column][group, vec] += sum over k of a[group][k][row] * b[k * b_k + column * kColumnStride], for the groups in
/// the bits of kUse; a[group] holds 16 rows for each k.
template <int kN, int kColumnStride, int kG, int kUse>
LONGHAUL_INLINE void outer_products(const float* const (&a)[kG], const float* b, int64_t b_k, int count,
                                    F (&acc)[kN][kG * kVecs]) {
  for (int k = 0; k < count; ++k) {
    F rows[kG * kVecs];
#pragma GCC unroll 8
    for (int r = 0; r < kG * kVecs; ++r) {
      if ((kUse >> (r / kVecs) & 1) != 0) rows[r] = load(a[r / kVecs] + k * kRows + r % kVecs * kLanes);
    }
#pragma GCC unroll 32
    for (int n = 0; n < kN; ++n) {
      const F column = set1(b[n * kColumnStride]);
#pragma GCC unroll 8
      for (int r = 0; r < kG * kVecs; ++r) {
        if ((kUse >> (r / kVecs) & 1) != 0) acc[n][r] = fma(column, rows[r], acc[n][r]);
      }
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
  outer_products<kN, kRowStride<kD>, kG, (1 << kG) - 1>(query, keys + key * kRowStride<kD>, 1, kD, acc);
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

/// Blocks of a tile that are computed, in visiting order.
struct KeptBlocks {
  int count = 0;
  int block[kBlocks];
};

/// What one group adds to its output.
struct Addend {
  KeptBlocks kept;
  const float* weights;  // [64][16]
  float* output;         // [dv][16]
  F rescale[kVecs];      // of the output before
};

/// kN columns of the output from `column` on; use[b]: bit g, group g keeps block b.
template <int kN, int kDv, int kG>
LONGHAUL_INLINE void add_columns(const Addend (&group)[kG], const int (&use)[kBlocks], const float* values,
                                 int column) {
  F acc[kN][kG * kVecs];
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n) {
    for (int r = 0; r < kG * kVecs; ++r) {
      const float* at = group[r / kVecs].output + (column + n) * kRows + r % kVecs * kLanes;
      acc[n][r] = load(at) * group[r / kVecs].rescale[r % kVecs];
    }
  }
  for (int b = kBlocks - 1; b >= 0; --b) {
    const float* block = values + b * kBlock * kRowStride<kDv> + column;
    const float* weights[kG];
    for (int g = 0; g < kG; ++g) weights[g] = group[g].weights + b * kBlock * kRows;
    if (use[b] == (1 << kG) - 1) {
      outer_products<kN, 1, kG, (1 << kG) - 1>(weights, block, kRowStride<kDv>, kBlock, acc);
    } else if constexpr (kG == 2) {
      if (use[b] == 1) outer_products<kN, 1, kG, 1>(weights, block, kRowStride<kDv>, kBlock, acc);
      if (use[b] == 2) outer_products<kN, 1, kG, 2>(weights, block, kRowStride<kDv>, kBlock, acc);
    }
  }
#pragma GCC unroll 32
  for (int n = 0; n < kN; ++n) {
    for (int r = 0; r < kG * kVecs; ++r) {
      store(group[r / kVecs].output + (column + n) * kRows + r % kVecs * kLanes, acc[n][r]);
    }
  }
}

template <int kDv, int kG>
__attribute__((noinline)) void add_values(const Addend (&group)[kG], const float* values) {
  static_assert(kG <= 2);
  int use[kBlocks] = {};
  for (int g = 0; g < kG; ++g) {
    for (int i = 0; i < group[g].kept.count; ++i) use[group[g].kept.block[i]] |= 1 << g;
  }
  constexpr int kN = kColumns / kG;
  int column = 0;
  for (; column + kN <= kDv; column += kN) add_columns<kN, kDv, kG>(group, use, values, column);
  if constexpr (kDv % kN > 0) add_columns<kDv % kN, kDv, kG>(group, use, values, column);
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
