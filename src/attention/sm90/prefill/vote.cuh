// The threshold of a warpgroup's rows, and the exchange that joins the votes of its four warps.
#pragma once

#include "attention/sm90/prefill/rows.cuh"

namespace longhaul::sm90 {

/// The threshold of an item: lambda as an exponent of 2, -inf for 0.
__device__ inline float log2_lambda(const PrefillKernelParams& p, const WorkItem& w) {
  float lambda = p.lambdas == nullptr ? p.lambda : p.lambdas[w.request * p.lambda_request + w.head * p.lambda_head];
  if (!(lambda >= 0 && lambda <= 1)) lambda = 0;  // the prepare kernel has reported it
  return lambda > 0 ? log2f(lambda) : -INFINITY;
}

/// The blocks that any of the four warps of the group keeps; every warp has put its own in `votes` before a barrier.
__device__ __forceinline__ uint32_t joint_vote(const uint8_t (&votes)[4]) {
  const uint32_t all = *reinterpret_cast<const volatile uint32_t*>(votes);
  const uint32_t pairs = all | all >> 16;
  return (pairs | pairs >> 8) & 0xff;
}

}  // namespace longhaul::sm90
