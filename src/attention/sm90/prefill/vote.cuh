// Which blocks of 16 keys a warpgroup leaves out: each thread tests its own maxima, warp votes join them, one exchange
// through shared memory joins the four warps.
#pragma once

#include <cfloat>

#include "attention/sm90/prefill/rows.cuh"

namespace longhaul::sm90 {

/// The threshold of an item: lambda as an exponent of 2, -inf for 0.
__device__ inline float log2_lambda(const PrefillKernelParams& p, const WorkItem& w) {
  float lambda = p.lambdas == nullptr ? p.lambda : p.lambdas[w.request * p.lambda_request + w.head * p.lambda_head];
  if (!(lambda >= 0 && lambda <= 1)) lambda = 0;  // the prepare kernel has reported it
  return lambda > 0 ? log2f(lambda) : -INFINITY;
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

/// The blocks that any of the four warps of the group keeps; every warp has put its own in `votes` before a barrier.
__device__ __forceinline__ uint32_t joint_vote(const uint8_t (&votes)[4]) {
  const uint32_t all = *reinterpret_cast<const volatile uint32_t*>(votes);
  const uint32_t pairs = all | all >> 16;
  return (pairs | pairs >> 8) & 0xff;
}

}  // namespace longhaul::sm90
