// From CUDA's error codes to the project's errors.
#pragma once

#include <cuda_runtime_api.h>

namespace longhaul {

/// Throws System, "cudaMalloc failed: out of memory", unless `error` is cudaSuccess. The error is taken off the thread,
/// so that the next call does not see it again.
void check_cuda(cudaError_t error, const char* call);

/// The calling thread's device. Throws System where there is none.
int current_cuda_device();

/// While it lives, this thread may allocate although some stream is capturing.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace longhaul
