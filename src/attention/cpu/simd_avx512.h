// Sixteen fp32 lanes: AVX-512 F, BW, DQ, VL. The same vocabulary as simd_avx2.h and simd_portable.h.
//
// Its bf16 dot product (vdpbf16ps) is not used: on the Xeon measured it reaches half the flops of fp32 FMA, and
// rounding the probabilities to bf16 costs accuracy besides (bench/results).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "attention/cpu/element.h"

#ifndef LONGHAUL_ISA  // the tile kernels use the same vectors under another name
#define LONGHAUL_ISA avx512
#endif
#ifdef __clang__
// clang-format off: it would split the literal, of which a pragma takes only one.
#define LONGHAUL_TARGET_BEGIN \
  _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c\"))), apply_to = function)")
// clang-format on
#define LONGHAUL_TARGET_END _Pragma("clang attribute pop")
#else
#define LONGHAUL_TARGET_BEGIN \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c\")")
#define LONGHAUL_TARGET_END _Pragma("GCC pop_options")
#endif

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

using F = __m512;
using M = __mmask16;
inline constexpr int kLanes = 16;
// Accumulators of the outer products: row vectors x columns = 24. Two voting groups share each broadcast
// (prefill_products-inl.h).
inline constexpr int kColumns = 24;
inline constexpr int kTogether = 2;
inline constexpr bool kElementsInLanes = true;  // of P.V in prefill
inline constexpr int kDecodeAccumulators = 16;

LONGHAUL_INLINE F zero() { return _mm512_setzero_ps(); }
LONGHAUL_INLINE F set1(float x) { return _mm512_set1_ps(x); }
LONGHAUL_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
LONGHAUL_INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
LONGHAUL_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
LONGHAUL_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }  // b where either is NaN
LONGHAUL_INLINE F abs(F x) { return _mm512_abs_ps(x); }
LONGHAUL_INLINE F copy_sign(F magnitude, F sign) {
  const F bit = _mm512_set1_ps(-0.0F);
  return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
}
LONGHAUL_INLINE F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// 2^n for integer-valued n in [-127, 127]; 2^-127 comes out as 0.
LONGHAUL_INLINE F pow2(F n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}

LONGHAUL_INLINE M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
LONGHAUL_INLINE M less_equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
LONGHAUL_INLINE M is_nan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
LONGHAUL_INLINE M operator_and(M a, M b) { return static_cast<M>(a & b); }
LONGHAUL_INLINE M operator_or(M a, M b) { return static_cast<M>(a | b); }
LONGHAUL_INLINE bool all(M m) { return m == 0xffff; }
LONGHAUL_INLINE bool any(M m) { return m != 0; }
LONGHAUL_INLINE F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }

LONGHAUL_INLINE float sum_lanes(F x) { return _mm512_reduce_add_ps(x); }
LONGHAUL_INLINE float max_lanes(F x) { return _mm512_reduce_max_ps(x); }

/// Lane i of the result is the sum of all lanes of x[i].
LONGHAUL_INLINE F sum_each(const F (&x)[kLanes]) {
  F quad[4];  // 4 sums of 4 lanes, in each quarter
  for (int i = 0; i < 4; ++i) {
    const F ab = _mm512_unpacklo_ps(x[4 * i], x[4 * i + 1]) + _mm512_unpackhi_ps(x[4 * i], x[4 * i + 1]);
    const F cd = _mm512_unpacklo_ps(x[4 * i + 2], x[4 * i + 3]) + _mm512_unpackhi_ps(x[4 * i + 2], x[4 * i + 3]);
    quad[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))) +
              _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  }
  // Quarters 0 and 2, then 1 and 3, of two vectors side by side; added, each vector is left with two quarters.
  const F lower = _mm512_shuffle_f32x4(quad[0], quad[1], 0x88) + _mm512_shuffle_f32x4(quad[0], quad[1], 0xdd);
  const F upper = _mm512_shuffle_f32x4(quad[2], quad[3], 0x88) + _mm512_shuffle_f32x4(quad[2], quad[3], 0xdd);
  return _mm512_shuffle_f32x4(lower, upper, 0x88) + _mm512_shuffle_f32x4(lower, upper, 0xdd);
}

// kLanes elements in memory order.
LONGHAUL_INLINE F load(const Bf16* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
LONGHAUL_INLINE F load(const F16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
/// e4m3 through binary16: the same fields three exponent-bias steps apart (x 256), which keeps subnormals exact.
LONGHAUL_INLINE F load(const F8E4M3* p) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi16(0x7f));
  const __m256i half = _mm256_or_si256(_mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8),
                                       _mm256_slli_epi16(magnitude, 7));
  const M nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
  const F value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0F));
  return _mm512_mask_blend_ps(nan, value, _mm512_set1_ps(__builtin_nanf("")));
}

/// 2 x kLanes elements in the order of pair_lane(): memory order, except bf16, whose even and odd elements come apart
/// with one operation each.
template <class T>
LONGHAUL_INLINE void load_pair(const T* p, F& first, F& second) {
  first = load(p);
  second = load(p + kLanes);
}
LONGHAUL_INLINE void load_pair(const Bf16* p, F& even, F& odd) {
  const __m512i x = _mm512_loadu_si512(p);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
