// Scores as the tensor cores leave them, in tiles of 8 columns: what a lane does with its own.
//
// A lane holds two rows, lane / 4 and 8 more of each 16, and of each 8 columns the pair at 2 * (lane % 4):
// s[4 * j + 2 * r + c] is column 8 * j + pair + c of row r.
#pragma once

#include <cfloat>
#include <cmath>

#include "ptx/math.h"

namespace longhaul::sm90 {

/// Maxima of two rows over the four threads that share them, side by side: a shuffle takes about 25 cycles.
__device__ __forceinline__ void quad_max(float (&x)[2]) {
#pragma unroll
  for (int lanes = 1; lanes <= 2; ++lanes) {
    const float other[2] = {__shfl_xor_sync(0xffffffff, x[0], lanes), __shfl_xor_sync(0xffffffff, x[1], lanes)};
    x[0] = ptx::max_or_nan(x[0], other[0]);
    x[1] = ptx::max_or_nan(x[1], other[1]);
  }
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/// Caps raw scores: natural units from here on.
template <int n>
__device__ __forceinline__ void cap_scores(float (&s)[n], float cap, float cap_scale) {
  // tanh(x) = 1 - 2 / (e^2x + 1), exact to 2^-22 of the cap; tanh.approx is off by 2^-11 of it.
  constexpr float kTwoLog2e = 2.885390081777927F;
#pragma unroll
  for (int i = 0; i < n; ++i) s[i] = cap - __fdividef(2 * cap, ptx::exp2_approximate(s[i] * cap_scale * kTwoLog2e) + 1);
}

/// A row would drop a block whose largest raw score lies below this. A reference (what the rule compares with, raw
/// units) of NaN or +inf drops nothing.
__device__ __forceinline__ float drop_below(float reference, float log2_lambda_raw) {
  return reference < INFINITY ? reference + log2_lambda_raw : -INFINITY;
}

/// One pass over scores: the thread's maxima of its two rows and, if `voting`, the blocks that both rows would drop.
/// Block maxima do not stay: 16 more registers would not fit beside 128 of scores and output.
template <bool voting, int n>
__device__ __forceinline__ void scan_scores(const float (&s)[n], const float (&below)[2], float (&maxima)[2],
                                            bool (&drop)[n / 8]) {
#pragma unroll
  for (int b = 0; b < n / 8; ++b) {
    drop[b] = voting;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float block_max = ptx::max_or_nan(ptx::max_or_nan(s[8 * b + 2 * r], s[8 * b + 2 * r + 1]),
                                              ptx::max_or_nan(s[8 * b + 4 + 2 * r], s[8 * b + 5 + 2 * r]));
      maxima[r] = b == 0 ? block_max : ptx::max_or_nan(maxima[r], block_max);
      drop[b] = drop[b] && block_max < below[r];
    }
  }
}

/// The factor of a row's exponents: no exponent grows where nothing was seen.
__device__ __forceinline__ float finite(float m) { return m == -INFINITY ? 0 : m; }

/// Running maximum in raw units; the maximum under which sums are kept; this thread's part of the sum of exponentials.
struct RowState {
  float m[2] = {-INFINITY, -INFINITY};
  float base[2] = {-INFINITY, -INFINITY};
  float l[2] = {0, 0};
};

}  // namespace longhaul::sm90
