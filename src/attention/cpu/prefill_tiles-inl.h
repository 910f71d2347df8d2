// Prefill: the two matrix products of a tile of 64 keys on matrix tiles (AMX): bf16 x bf16, summed in fp32.
//
// Both are turned so that rows stay in the lanes, as the softmax wants them, and neither scores nor weights need
// turning:
//   S^T = K Q^T     A = 16 keys as they lie, B = the group's query, stored once in pairs of elements
//   O^T += V^T P^T  A = 16 elements x 32 keys of the turned values, B = weights in pairs of keys
// Only V is turned, once for all groups of the item.
//
// A product takes 32 keys, two blocks. What a group kept is packed together: any two of the four blocks lie side by
// side in one of two orders of V^T, [0 1 2 3] and [1 3 0 2]. A block that is left alone is paired with weights of 0.
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

/// Which products of 32 keys a group's kept blocks take: `first` is a place in the order of the values, and block b's
/// weights lie at place slot[b] of the weights.
struct PairPlan {
  int count = 0;
  struct Pair {
    bool crosswise;
    int first;
  } pair[2];
  int slot[kBlocks];
  int empty = -1, second_empty = -1;  // places without a block

  explicit PairPlan(const KeptBlocks& kept) {
    bool is_kept[kBlocks] = {};
    for (int i = 0; i < kept.count; ++i) is_kept[kept.block[i]] = true;
    const bool low = is_kept[0] || is_kept[1], high = is_kept[2] || is_kept[3];
    if (kept.count == 2 && low && high) {
      count = 1;
      const int lower = is_kept[0] ? 0 : 1, upper = is_kept[2] ? 2 : 3;
      const bool upper_first = lower == 0 && upper == 3;  // order [1 3 0 2]
      slot[lower] = upper_first ? 1 : 0;
      slot[upper] = upper_first ? 0 : 1;
      pair[0] = lower == 1 && upper == 2 ? Pair{false, 1} : Pair{true, lower == 1 ? 0 : upper == 3 ? 1 : 2};
      return;
    }
    for (int half = 0; half < 2; ++half) {
      if (!(half == 0 ? low : high)) continue;
      for (int b = 2 * half; b < 2 * half + 2; ++b) {
        slot[b] = 2 * count + b % 2;
        if (!is_kept[b]) (empty < 0 ? empty : second_empty) = slot[b];
      }
      pair[count++] = {false, 2 * half};
    }
  }
};

inline constexpr int kCrosswisePlace[kBlocks] = {2, 0, 3, 1};  // of block b in the order [1 3 0 2]

template <int kD, int kDv>
class Products {
 public:
  static constexpr bool kLateScale = true;
  static constexpr int kTogether = 1;
  static constexpr int kQueryFloats = kD / 2 * kRows;  // pairs of elements
  static constexpr int kKeyFloats = kTile * kD / 2, kValueFloats = kTile * kDv / 2, kWeightFloats = kTile * kRows / 2;
  static constexpr int kStagedFloats = kBlock * kDv / 2;
  static constexpr int kRowFloats = kD > kDv ? kD : kDv;
  static constexpr size_t kScratchFloats = kKeyFloats + 2 * kValueFloats + kWeightFloats + kStagedFloats + kRowFloats;

  explicit Products(float* scratch)
      : keys_(reinterpret_cast<uint16_t*>(scratch)),
        values_{reinterpret_cast<uint16_t*>(scratch + kKeyFloats),
                reinterpret_cast<uint16_t*>(scratch + kKeyFloats + kValueFloats)},
        weights_(reinterpret_cast<uint32_t*>(scratch + kKeyFloats + 2 * kValueFloats)),
        staged_(reinterpret_cast<uint16_t*>(scratch + kKeyFloats + 2 * kValueFloats + kWeightFloats)),
        row_(scratch + kScratchFloats - kRowFloats) {
    // A block that nobody has read meets weights of 0: it must be finite.
    __builtin_memset(values_[0], 0, 2 * kValueFloats * sizeof(float));
  }

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
    for (int b = 0; b < kBlocks; ++b) values_read_[b] = crosswise_read_[b] = false;
  }

  template <int kG>
  void score(const float* const (&query)[kG], float* const (&scores)[kG]) {
    static_assert(kG == 1);
    constexpr int kKeyBytes = kD * 2, kBlockElements = kBlock * kD;
    tiles_.template zero<0>();
    tiles_.template zero<1>();
    tiles_.template zero<2>();
    tiles_.template zero<3>();
    for (int k = 0; k < kD; k += 32) {
      const uint16_t* keys = keys_ + k;
      tiles_.template load<4>(query[0] + k / 2 * kRows, 64);
      tiles_.template load<5>(keys, kKeyBytes);
      tiles_.template dot<0, 5, 4>();
      tiles_.template load<6>(keys + kBlockElements, kKeyBytes);
      tiles_.template dot<1, 6, 4>();
      tiles_.template load<5>(keys + 2 * kBlockElements, kKeyBytes);
      tiles_.template dot<2, 5, 4>();
      tiles_.template load<6>(keys + 3 * kBlockElements, kKeyBytes);
      tiles_.template dot<3, 6, 4>();
    }
    tiles_.template store<0>(scores[0], 64);
    tiles_.template store<1>(scores[0] + kBlock * kRows, 64);
    tiles_.template store<2>(scores[0] + 2 * kBlock * kRows, 64);
    tiles_.template store<3>(scores[0] + 3 * kBlock * kRows, 64);
  }

  /// The point that the weights refer to follows the maximum only when that has grown by more than 2^8, so that the
  /// output, which lies in memory, is hardly ever rescaled. bf16 and fp32 are as exact at 2^8 as at 1.
  static F next_base(F base, F max) { return select(less(base + set1(8.0F), max), max, base); }

  /// Turns the scores of the kept blocks into weights and adds them to `sum`, before they are rounded to bf16: then the
  /// log-sum-exp does not suffer from the rounding, and the output's error is the weights' own, half a unit at most.
  template <bool kKeepWeights>
  void weigh(Addend& addend, float* scores, F scale, const F (&base)[kVecs], F (&sum)[kVecs]) {
    plan_ = PairPlan(addend.kept);
    for (int i = 0; i < addend.kept.count; ++i) {
      const int b = addend.kept.block[i];
      float* from = scores + b * kBlock * kRows;
      uint32_t* to = weights_ + plan_.slot[b] * (kBlock / 2) * kRows;
      for (int r = 0; r < kVecs; ++r) {
        F odd_sum = zero();
#pragma GCC unroll 8
        for (int j = 0; j < kBlock; j += 2) {
          float* even = from + j * kRows + r * kLanes;
          float* odd = even + kRows;
          const F w0 = weight_exp2(fma(load(even), scale, zero() - base[r]));
          const F w1 = weight_exp2(fma(load(odd), scale, zero() - base[r]));
          sum[r] = sum[r] + w0;
          odd_sum = odd_sum + w1;
          store_pair(to + j / 2 * kRows + r * kLanes, w0, w1);
          if constexpr (kKeepWeights) {
            store(even, w0);
            store(odd, w1);
          }
        }
        sum[r] = sum[r] + odd_sum;
      }
    }
    for (const int empty : {plan_.empty, plan_.second_empty}) {
      if (empty < 0) continue;
      __builtin_memset(weights_ + empty * (kBlock / 2) * kRows, 0, kBlock / 2 * kRows * sizeof *weights_);
    }
  }
  float weight(const Addend&, int j, int r) const {
    const uint32_t pair = weights_[(plan_.slot[j / kBlock] * (kBlock / 2) + j % kBlock / 2) * kRows + r];
    return from_upper_half(j % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
  }

  /// Turns the blocks that nobody has needed yet; true if one of those kept holds a value that is not finite.
  bool read_values(const PrefillTile& tile, const Addend& addend) {
    const bool crosswise = plan_.pair[0].crosswise;
    bool bad = false;
    for (int i = 0; i < addend.kept.count; ++i) {
      const int b = addend.kept.block[i];
      if (!values_read_[b]) turn_values(tile, b);
      if (crosswise && !crosswise_read_[b]) copy_crosswise(b);
      bad = bad || values_bad_[b];
    }
    return bad;
  }
  bool values_read(int block) const { return values_read_[block]; }
  const float* value_row(const PrefillTile& tile, int j) {
    tile.read_value(j, kDv, row_);
    return row_;
  }

  void add(const Addend& addend) {
    rescale(addend);
    const uint16_t* first = values_[plan_.pair[0].crosswise ? 1 : 0] + plan_.pair[0].first * kBlock;
    tiles_.template load<4>(weights_, 64);
    if (plan_.count == 1) {
      for (int c = 0; c < kDv; c += 64) {
        load_outputs(addend.output + c * kRows);
        multiply<4>(first + c * kTile);
        store_outputs(addend.output + c * kRows);
      }
      return;
    }
    const uint16_t* second = values_[0] + plan_.pair[1].first * kBlock;
    tiles_.template load<5>(weights_ + kBlock * kRows, 64);
    for (int c = 0; c < kDv; c += 64) {
      load_outputs(addend.output + c * kRows);
      multiply<4>(first + c * kTile);
      multiply<5>(second + c * kTile);
      store_outputs(addend.output + c * kRows);
    }
  }

 private:
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
    uint16_t* to = values_[0] + b * kBlock;
    values_bad_[b] = turn_block<kDv>(rows, to);
    if (!values_bad_[b]) return;
    for (int c = 0; c < kDv; ++c) __builtin_memset(to + c * kTile, 0, kBlock * sizeof *to);  // may meet weights of 0
  }

  void copy_crosswise(int b) {
    crosswise_read_[b] = true;
    const uint16_t* from = values_[0] + b * kBlock;
    uint16_t* to = values_[1] + kCrosswisePlace[b] * kBlock;
    for (int c = 0; c < kDv; ++c) __builtin_memcpy(to + c * kTile, from + c * kTile, kBlock * sizeof *to);
  }

  void rescale(const Addend& addend) {
    const F one = set1(1.0F);
    bool unchanged = true;
    for (int r = 0; r < kVecs; ++r) {
      const F factor = addend.rescale[r];
      unchanged = unchanged && all(operator_and(less_equal(factor, one), less_equal(one, factor)));
    }
    if (unchanged) return;
    for (int c = 0; c < kDv; ++c) {
      for (int r = 0; r < kVecs; ++r) {
        float* at = addend.output + c * kRows + r * kLanes;
        store(at, load(at) * addend.rescale[r]);
      }
    }
  }

  /// 64 elements of 16 rows.
  void load_outputs(const float* output) {
    tiles_.template load<0>(output, 64);
    tiles_.template load<1>(output + 16 * kRows, 64);
    tiles_.template load<2>(output + 32 * kRows, 64);
    tiles_.template load<3>(output + 48 * kRows, 64);
  }
  void store_outputs(float* output) {
    tiles_.template store<0>(output, 64);
    tiles_.template store<1>(output + 16 * kRows, 64);
    tiles_.template store<2>(output + 32 * kRows, 64);
    tiles_.template store<3>(output + 48 * kRows, 64);
  }
  template <int kWeights>
  void multiply(const uint16_t* values) {
    constexpr int kStride = kTile * 2;
    tiles_.template load<6>(values, kStride);
    tiles_.template dot<0, 6, kWeights>();
    tiles_.template load<7>(values + 16 * kTile, kStride);
    tiles_.template dot<1, 7, kWeights>();
    tiles_.template load<6>(values + 32 * kTile, kStride);
    tiles_.template dot<2, 6, kWeights>();
    tiles_.template load<7>(values + 48 * kTile, kStride);
    tiles_.template dot<3, 7, kWeights>();
  }

  Tiles tiles_;
  uint16_t* keys_;       // [64][kD]
  uint16_t* values_[2];  // [kDv][64], the blocks in order and crosswise
  uint32_t* weights_;    // [place of a block][8 pairs of keys][16 rows]
  uint16_t* staged_;     // [16][kDv]
  float* row_;
  PairPlan plan_{KeptBlocks{}};
  bool values_read_[kBlocks] = {};
  bool values_bad_[kBlocks] = {};
  bool crosswise_read_[kBlocks] = {};
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
