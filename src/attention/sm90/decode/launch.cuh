// Launches of kernels that wait by themselves for the ones before them.
#pragma once

#include <cuda_runtime.h>

#include "attention/sm90/decode/kernel_params.h"

namespace longhaul::sm90 {

/// The kernel may start while the one before it in the stream still runs; it must begin with wait_for_earlier_grids().
template <class Kernel, class... Arguments>
cudaError_t launch_early(Kernel* kernel, dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream,
                         const Arguments&... arguments) {
  if (shared_bytes > 0) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = grid;
  launch.blockDim = static_cast<unsigned>(threads);
  launch.dynamicSmemBytes = shared_bytes;
  launch.stream = stream;
  launch.attrs = &early;
  launch.numAttrs = 1;
  return cudaLaunchKernelEx(&launch, kernel, arguments...);
}

}  // namespace longhaul::sm90
