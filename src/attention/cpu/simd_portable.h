// Four fp32 lanes in the compilers' own vector types: any processor. The same vocabulary as simd_avx2.h and
// simd_avx512.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention/cpu/element.h"
#include "longhaul/dtype.h"

#ifndef LONGHAUL_ISA  // the tile kernels use the same vectors under another name
#define LONGHAUL_ISA portable
#endif
#define LONGHAUL_TARGET_BEGIN
#define LONGHAUL_TARGET_END

namespace longhaul::LONGHAUL_ISA {

using F __attribute__((vector_size(16))) = float;
using M __attribute__((vector_size(16))) = int32_t;
inline constexpr int kLanes = 4;
#ifdef __aarch64__
inline constexpr int kColumns = 6;  // 4 row vectors x 6 columns, 4 rows and 1 broadcast in 32 registers
#else
inline constexpr int kColumns = 2;  // 4 x 2, 4 and 1 in 16
#endif
inline constexpr int kTogether = 1;
inline constexpr bool kElementsInLanes = false;  // of P.V in prefill
inline constexpr int kDecodeAccumulators = 8;

LONGHAUL_INLINE F zero() { return F{0, 0, 0, 0}; }
LONGHAUL_INLINE F set1(float x) { return F{x, x, x, x}; }
LONGHAUL_INLINE F load(const float* p) {
  F x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
LONGHAUL_INLINE void store(float* p, F x) { std::memcpy(p, &x, sizeof x); }
LONGHAUL_INLINE F fma(F a, F b, F c) { return a * b + c; }
LONGHAUL_INLINE F select(M m, F yes, F no) {
  const M bits = (m & reinterpret_cast<M>(yes)) | (~m & reinterpret_cast<M>(no));
  return reinterpret_cast<F>(bits);
}
LONGHAUL_INLINE F max(F a, F b) { return select(a > b, a, b); }  // b where either is NaN
LONGHAUL_INLINE F abs(F x) { return reinterpret_cast<F>(reinterpret_cast<M>(x) & 0x7fffffff); }
LONGHAUL_INLINE F copy_sign(F magnitude, F sign) {
  const M bit = ~M{0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff};
  return reinterpret_cast<F>((reinterpret_cast<M>(magnitude) & ~bit) | (reinterpret_cast<M>(sign) & bit));
}
/// Ties to even, for |x| < 2^22 (adding 1.5 x 2^23 leaves the integer in the low bits).
LONGHAUL_INLINE F round(F x) { return (x + 12582912.0F) - 12582912.0F; }
/// 2^n for integer-valued n in [-127, 127]; 2^-127 comes out as 0.
LONGHAUL_INLINE F pow2(F n) {
  // The low bits of n + 1.5 x 2^23 hold the integer, also without a conversion that is undefined for NaN.
  const M bits = reinterpret_cast<M>(n + (12582912.0F + 127.0F));
  return reinterpret_cast<F>(bits << 23);
}

LONGHAUL_INLINE M less(F a, F b) { return a < b; }
LONGHAUL_INLINE M less_equal(F a, F b) { return a <= b; }
LONGHAUL_INLINE M is_nan(F a) { return a != a; }
LONGHAUL_INLINE M operator_and(M a, M b) { return a & b; }
LONGHAUL_INLINE M operator_or(M a, M b) { return a | b; }
LONGHAUL_INLINE bool all(M m) { return (m[0] & m[1] & m[2] & m[3]) != 0; }
LONGHAUL_INLINE bool any(M m) { return (m[0] | m[1] | m[2] | m[3]) != 0; }

LONGHAUL_INLINE float sum_lanes(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }
LONGHAUL_INLINE float max_lanes(F x) {
  const F pair = max(x, F{x[2], x[3], x[0], x[1]});
  return pair[0] > pair[1] ? pair[0] : pair[1];
}

/// Lane i of the result is the sum of all lanes of x[i].
LONGHAUL_INLINE F sum_each(const F (&x)[kLanes]) {
  return F{sum_lanes(x[0]), sum_lanes(x[1]), sum_lanes(x[2]), sum_lanes(x[3])};
}

// kLanes elements in memory order.
LONGHAUL_INLINE F load(const Bf16* p) {
  return reinterpret_cast<F>(M{p[0].bits, p[1].bits, p[2].bits, p[3].bits} << 16);
}
LONGHAUL_INLINE F load(const F16* p) {
  return F{f16_to_float(p[0].bits), f16_to_float(p[1].bits), f16_to_float(p[2].bits), f16_to_float(p[3].bits)};
}
LONGHAUL_INLINE F load(const F8E4M3* p) {
  return F{f8e4m3_to_float(p[0].bits), f8e4m3_to_float(p[1].bits), f8e4m3_to_float(p[2].bits),
           f8e4m3_to_float(p[3].bits)};
}

/// 2 x kLanes elements in the order of pair_lane(): memory order, except bf16, whose even and odd elements come apart
/// (as with AVX2, so that one order serves all).
template <class T>
LONGHAUL_INLINE void load_pair(const T* p, F& first, F& second) {
  first = load(p);
  second = load(p + kLanes);
}
LONGHAUL_INLINE void load_pair(const Bf16* p, F& even, F& odd) {
  even = reinterpret_cast<F>(M{p[0].bits, p[2].bits, p[4].bits, p[6].bits} << 16);
  odd = reinterpret_cast<F>(M{p[1].bits, p[3].bits, p[5].bits, p[7].bits} << 16);
}

}  // namespace longhaul::LONGHAUL_ISA
