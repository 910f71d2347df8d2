#include "core/cuda/devices.h"

#include <cuda_runtime_api.h>

#include "core/cuda/check.h"

#define LONGHAUL_TEXT2(x) #x
#define LONGHAUL_TEXT(x) LONGHAUL_TEXT2(x)

namespace longhaul {
namespace {

CudaDevices ask() {
  CudaDevices result;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();
    result.why_none = error == cudaErrorInsufficientDriver || error == cudaErrorInitializationError
                          ? "the NVIDIA driver is missing or too old"
                          : cudaGetErrorString(error);
    return result;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp prop{};
    if (const cudaError_t error = cudaGetDeviceProperties(&prop, index); error != cudaSuccess) {
      cudaGetLastError();
      result.why_none = cudaGetErrorString(error);
      continue;
    }
    result.devices.push_back({index, prop.name, prop.major, prop.minor, prop.multiProcessorCount,
                              static_cast<int64_t>(prop.totalGlobalMem)});
  }
  if (count == 0) result.why_none = "the driver sees no device";
  return result;
}

}  // namespace

const CudaDevices& cuda_devices() {
  static const CudaDevices devices = ask();
  return devices;
}

const char* cuda_build() { return LONGHAUL_TEXT(LONGHAUL_CUDA_BUILD); }

}  // namespace longhaul
