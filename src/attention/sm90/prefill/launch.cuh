// Launches one instantiation.
#pragma once

#include <cuda_runtime.h>

#include "attention/sm90/prefill/kernel.cuh"

namespace longhaul::sm90 {

/// Enqueues the kernel: p.clusters clusters of p.ranks blocks, a block to a multiprocessor.
template <class Config>
cudaError_t launch_prefill(const PrefillKernelParams& p, cudaStream_t stream) {
  auto* kernel = prefill_kernel<Config>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Config::kSharedBytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(p.ranks), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = static_cast<unsigned>(p.clusters * p.ranks);
  launch.blockDim = Config::kThreads;
  launch.dynamicSmemBytes = Config::kSharedBytes;
  launch.stream = stream;
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  return cudaLaunchKernelEx(&launch, kernel, p);
}

}  // namespace longhaul::sm90
