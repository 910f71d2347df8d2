// Which blocks of 16 keys a warpgroup leaves out: each thread tests its own maxima, a warp vote joins them, one
// exchange through shared memory joins the four warps.
#pragma once

#include "attention/sm90/prefill/rows.cuh"
#include "ptx/sync.h"

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

/// Blocks that every row of the warp drops (uniform). Blocks of `keep` stay. In a tile with a mask (`masked`) a row
/// that sees no key of a block, whose maximum then is -inf, is not asked.
template <bool masked, int blocks>
__device__ __forceinline__ uint32_t warp_vote(const float (&block_max)[blocks][2], const float (&below)[2],
                                              uint32_t keep) {
  uint32_t drop = 0;
#pragma unroll
  for (int b = 0; b < blocks; ++b) {
    bool votes[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) votes[r] = block_max[b][r] < below[r] || (masked && block_max[b][r] == -INFINITY);
    if (votes[0] && votes[1]) drop |= 1U << b;
  }
  return __reduce_and_sync(0xffffffff, drop & ~keep);
}

/// The blocks that all four warps of the group drop; every warp has put its vote in `votes` before a barrier.
__device__ __forceinline__ uint32_t joint_vote(const uint8_t (&votes)[4]) {
  const uint32_t all = *reinterpret_cast<const volatile uint32_t*>(votes);
  const uint32_t pairs = all & all >> 16;
  return pairs & pairs >> 8 & 0xff;
}

}  // namespace longhaul::sm90
