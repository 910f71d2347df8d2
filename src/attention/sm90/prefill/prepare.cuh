// Lays out the work list on the device, so that lengths and thresholds may change between replays of a CUDA graph.
#pragma once

#include <cuda_runtime.h>

#include "attention/sm90/prefill/kernel_params.h"

namespace longhaul::sm90 {

inline constexpr int kPrepareThreads = 1024;
/// Batches up to here are worked on longest request first; larger ones in their own order.
inline constexpr int kSortedRequests = 4096;

/// Enqueues one block that checks lengths and thresholds, sorts the requests and counts their items.
cudaError_t launch_prepare(const PrefillKernelParams& p, cudaStream_t stream);

}  // namespace longhaul::sm90
