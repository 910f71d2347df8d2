#include "attention/sm90/multiprocessors.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/cuda/check.h"
#include "core/cuda/devices.h"
#include "core/environment.h"

namespace longhaul {

int usable_multiprocessors() {
  int count = 0;
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, current_cuda_device()),
             "cudaDeviceGetAttribute");
  return std::min(count, multiprocessors_setting().value_or(count));
}

}  // namespace longhaul
