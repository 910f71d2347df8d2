// The tile operations of tiles_amx.h in plain C++, so that every machine can test the tile kernels. Differs from the
// hardware in the order of a product's sum and in that it keeps subnormal numbers.
#pragma once

#include <cstring>

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

/// Eight tiles of 16 rows x 64 bytes.
class Tiles {
 public:
  Tiles() { std::memset(tile_, 0xff, sizeof tile_); }  // NaN: a tile must be loaded before it is read

  template <int kT>
  void zero() {
    std::memset(tile_[kT], 0, sizeof tile_[kT]);
  }
  template <int kT>
  void load(const void* from, int stride) {
    for (int row = 0; row < 16; ++row) std::memcpy(tile_[kT][row], static_cast<const char*>(from) + row * stride, 64);
  }
  template <int kT>
  void store(void* to, int stride) const {
    for (int row = 0; row < 16; ++row) std::memcpy(static_cast<char*>(to) + row * stride, tile_[kT][row], 64);
  }
  /// C[m][n] += sum over pairs k of A[m][k] . B[k][n]: fp32 += pairs of bf16.
  template <int kC, int kA, int kB>
  void dot() {
    for (int m = 0; m < 16; ++m) {
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < 16; ++n) {
          const uint32_t a = tile_[kA][m][k], b = tile_[kB][k][n];
          float c = as_float(tile_[kC][m][n]);
          c += as_float(a << 16) * as_float(b << 16);
          c += as_float(a & 0xffff0000U) * as_float(b & 0xffff0000U);
          std::memcpy(&tile_[kC][m][n], &c, sizeof c);
        }
      }
    }
  }

 private:
  static float as_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  uint32_t tile_[8][16][16];
};

LONGHAUL_INLINE F floor_of(F x) {
  return round(x - set1(0.5F));
}  // or x - 1 for an integer: the polynomial meets there

/// 2^x for x < 127 by weight_polynomial(); 0 below -126; NaN stays NaN.
LONGHAUL_INLINE F weight_exp2(F x) {
  const F clamped = max(set1(-126.0F), x);  // this operand order keeps NaN
  const F n = floor_of(clamped);
  return select(less(x, set1(-126.0F)), zero(), weight_polynomial(clamped - n) * pow2(n));
}

/// Rounds to bf16 and stores lane by lane (even, odd): one row vector of a pair of keys. NaN stays NaN.
LONGHAUL_INLINE void store_pair(uint32_t* to, F even, F odd) {
  float e[kLanes], o[kLanes];
  store(e, even);
  store(o, odd);
  for (int i = 0; i < kLanes; ++i) {
    to[i] = nearest_bf16(e[i]) | static_cast<uint32_t>(nearest_bf16(o[i])) << 16;
  }
}

/// to[c * kTile + j] = rows[j][c]: a block of 16 values, turned. True if one of them is not finite.
template <int kDv>
bool turn_block(const uint16_t* const (&rows)[kBlock], uint16_t* to) {
  bool bad = false;
  for (int j = 0; j < kBlock; ++j) {
    for (int c = 0; c < kDv; ++c) {
      to[c * kTile + j] = rows[j][c];
      bad = bad || (rows[j][c] & 0x7f80U) == 0x7f80U;
    }
  }
  return bad;
}

LONGHAUL_INLINE void fetch_line(const void*) {}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
