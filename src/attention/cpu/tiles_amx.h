// Matrix tiles of AMX (amx-tile, amx-bf16) and the AVX-512 operations that feed them. tiles_emulated.h has the same
// vocabulary.
//
// In assembly, because g++ 12's intrinsics do not say that a tile load reads memory, and stores move past them.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

/// Eight tiles of 16 rows x 64 bytes, configured as long as the object lives: the registers of this thread. Whatever
/// used tiles before on this thread finds them released.
class Tiles {
 public:
  Tiles() {
    alignas(64) uint8_t config[64] = {1};  // palette 1
    for (int t = 0; t < 8; ++t) {
      config[16 + 2 * t] = 64;  // bytes of a row
      config[48 + t] = 16;      // rows
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kT>
  LONGHAUL_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kT));
  }
  template <int kT>
  LONGHAUL_INLINE void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kT), "r"(from), "r"(stride) : "memory");
  }
  template <int kT>
  LONGHAUL_INLINE void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kT), "r"(to), "r"(stride) : "memory");
  }
  /// C[m][n] += sum over pairs k of A[m][k] . B[k][n]: fp32 += pairs of bf16.
  template <int kC, int kA, int kB>
  LONGHAUL_INLINE void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

/// 2^x for x < 127 by weight_polynomial(): 7 operations, since vreduceps and vscalefps take exponent and special cases
/// on themselves. NaN stays NaN.
LONGHAUL_INLINE F weight_exp2(F x) {
  const F fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  return _mm512_scalef_ps(weight_polynomial(fraction), x);
}

/// Rounds to bf16 and stores lane by lane (even, odd): one row vector of a pair of keys. NaN stays NaN: those that
/// arise here have no low bits set, so that rounding cannot overflow them. A tie goes away from zero.
LONGHAUL_INLINE void store_pair(uint32_t* to, F even, F odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  const __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  _mm512_storeu_si512(to, _mm512_mask_blend_epi16(0xaaaaaaaaU, low, high));
}

LONGHAUL_INLINE __m512i load_two(const uint16_t* lower, const uint16_t* upper) {
  const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(lower)));
  return _mm512_inserti64x4(low, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(upper)), 1);
}

/// to[c * kTile + j] = rows[j][c]: a block of 16 values, turned. True if one of them is not finite.
template <int kDv>
bool turn_block(const uint16_t* const (&rows)[kBlock], uint16_t* to) {
  static_assert(kBlock == 16 && kDv % 16 == 0);
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  const __m512i quarters = _mm512_set_epi64(7, 6, 3, 2, 5, 4, 1, 0);  // 0 2 1 3
  __mmask32 bad = 0;
  for (int c = 0; c < kDv; c += 16) {
    // Quarters of x[j]: row j's columns 0-7, 8-15, row j + 8's columns 0-7, 8-15. Interleaving words, doublewords and
    // quadwords turns each quarter, 8 rows x 8 columns over the 8 vectors.
    __m512i x[8], y[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      x[j] = load_two(rows[j] + c, rows[j + 8] + c);
      bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x[j], exponent), exponent);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {  // words: y[2j], y[2j + 1] hold rows 2j, 2j + 1 of columns 0-3, 4-7
      y[2 * j] = _mm512_unpacklo_epi16(x[2 * j], x[2 * j + 1]);
      y[2 * j + 1] = _mm512_unpackhi_epi16(x[2 * j], x[2 * j + 1]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {  // doublewords: x[4j + i] holds rows 4j - 4j + 3 of columns 2i, 2i + 1
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        x[4 * j + 2 * i] = _mm512_unpacklo_epi32(y[4 * j + i], y[4 * j + 2 + i]);
        x[4 * j + 2 * i + 1] = _mm512_unpackhi_epi32(y[4 * j + i], y[4 * j + 2 + i]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // quadwords: y[i] holds all rows of column i
      y[2 * i] = _mm512_unpacklo_epi64(x[i], x[4 + i]);
      y[2 * i + 1] = _mm512_unpackhi_epi64(x[i], x[4 + i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m512i columns = _mm512_permutexvar_epi64(quarters, y[i]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (c + i) * kTile), _mm512_castsi512_si256(columns));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (c + 8 + i) * kTile), _mm512_extracti64x4_epi64(columns, 1));
    }
  }
  return bad != 0;
}

LONGHAUL_INLINE void fetch_line(const void* line) { _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T1); }

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
