// Eight fp32 lanes: AVX2, FMA, F16C. The same vocabulary as simd_avx512.h and simd_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "attention/cpu/element.h"

#define LONGHAUL_ISA avx2
#ifdef __clang__
#define LONGHAUL_TARGET_BEGIN \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,f16c\"))), apply_to = function)")
#define LONGHAUL_TARGET_END _Pragma("clang attribute pop")
#else
#define LONGHAUL_TARGET_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c\")")
#define LONGHAUL_TARGET_END _Pragma("GCC pop_options")
#endif

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

using F = __m256;  // fp32 lanes
using M = __m256;  // a mask: all bits of a lane
inline constexpr int kLanes = 8;
// Accumulators of the outer products: 2 row vectors x 6 columns, 2 rows and 1 broadcast fill 15 of 16 registers.
inline constexpr int kColumns = 6;
inline constexpr int kTogether = 1;
inline constexpr bool kElementsInLanes = false;  // of P.V in prefill
inline constexpr int kDecodeAccumulators = 8;

LONGHAUL_INLINE F zero() { return _mm256_setzero_ps(); }
LONGHAUL_INLINE F set1(float x) { return _mm256_set1_ps(x); }
LONGHAUL_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
LONGHAUL_INLINE void store(float* p, F x) { _mm256_storeu_ps(p, x); }
LONGHAUL_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
LONGHAUL_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }  // b where either is NaN
LONGHAUL_INLINE F abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x); }
LONGHAUL_INLINE F copy_sign(F magnitude, F sign) {
  const F bit = _mm256_set1_ps(-0.0F);
  return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
}
LONGHAUL_INLINE F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// 2^n for integer-valued n in [-127, 127]; 2^-127 comes out as 0.
LONGHAUL_INLINE F pow2(F n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

LONGHAUL_INLINE M less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
LONGHAUL_INLINE M less_equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
LONGHAUL_INLINE M is_nan(F a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
LONGHAUL_INLINE M operator_and(M a, M b) { return _mm256_and_ps(a, b); }
LONGHAUL_INLINE M operator_or(M a, M b) { return _mm256_or_ps(a, b); }
LONGHAUL_INLINE bool all(M m) { return _mm256_movemask_ps(m) == 0xff; }
LONGHAUL_INLINE bool any(M m) { return _mm256_movemask_ps(m) != 0; }
LONGHAUL_INLINE F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }

LONGHAUL_INLINE float sum_lanes(F x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
LONGHAUL_INLINE float max_lanes(F x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/// Lane i of the result is the sum of all lanes of x[i].
LONGHAUL_INLINE F sum_each(const F (&x)[kLanes]) {
  F quad[2];  // 4 sums of 4 lanes, in each half
  for (int i = 0; i < 2; ++i) {
    const F ab = _mm256_unpacklo_ps(x[4 * i], x[4 * i + 1]) + _mm256_unpackhi_ps(x[4 * i], x[4 * i + 1]);
    const F cd = _mm256_unpacklo_ps(x[4 * i + 2], x[4 * i + 3]) + _mm256_unpackhi_ps(x[4 * i + 2], x[4 * i + 3]);
    quad[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd))) +
              _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd)));
  }
  return _mm256_permute2f128_ps(quad[0], quad[1], 0x20) + _mm256_permute2f128_ps(quad[0], quad[1], 0x31);
}

// kLanes elements in memory order.
LONGHAUL_INLINE F load(const Bf16* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
LONGHAUL_INLINE F load(const F16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
/// e4m3 through binary16: the same fields three exponent-bias steps apart (x 256), which keeps subnormals exact.
LONGHAUL_INLINE F load(const F8E4M3* p) {
  const __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i magnitude = _mm_and_si128(x, _mm_set1_epi16(0x7f));
  const __m128i half =
      _mm_or_si128(_mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x80)), 8), _mm_slli_epi16(magnitude, 7));
  const __m256i nan = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)));
  const F value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0F));
  return _mm256_or_ps(value, _mm256_castsi256_ps(nan));  // all bits set is a NaN
}

/// 2 x kLanes elements in the order of pair_lane(): memory order, except bf16, whose even and odd elements come apart
/// with one operation each.
template <class T>
LONGHAUL_INLINE void load_pair(const T* p, F& first, F& second) {
  first = load(p);
  second = load(p + kLanes);
}
LONGHAUL_INLINE void load_pair(const Bf16* p, F& even, F& odd) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
  odd = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
