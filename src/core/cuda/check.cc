#include "core/cuda/check.h"

#include <fmt/format.h>

#include "longhaul/error.h"

namespace longhaul {

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw System(fmt::format("{} failed: {}", call, cudaGetErrorString(error)));
}

int current_cuda_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

RelaxedCapture::RelaxedCapture() {
  check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
}
RelaxedCapture::~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

}  // namespace longhaul
