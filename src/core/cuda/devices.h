// The CUDA devices of this machine, for code that knows no CUDA headers. A build without CUDA has these functions too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul {

struct CudaDevice {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
};

struct CudaDevices {
  std::vector<CudaDevice> devices;
  std::string why_none;  ///< where there are none: "the driver is missing", as the end of a sentence
};

/// Asked once. Thread-safe, throws nothing: a machine without a driver has no devices.
const CudaDevices& cuda_devices();

/// Version of the CUDA toolkit that this build's kernels come from, "13.0", or "" without.
const char* cuda_build();

}  // namespace longhaul
