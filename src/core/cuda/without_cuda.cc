// A build without CUDA: no devices, and whoever asks for device memory is told why there is none.
#include <fmt/format.h>

#include "core/cuda/devices.h"
#include "core/cuda/memory.h"
#include "core/cuda/without_cuda.h"
#include "longhaul/error.h"

namespace longhaul {

void refuse_without_cuda(const char* what) {
  throw Unsupported(
      fmt::format("{} needs CUDA, but this build has no GPU kernels ({})", what, LONGHAUL_NO_CUDA_REASON));
}

const CudaDevices& cuda_devices() {
  static const CudaDevices none{{}, LONGHAUL_NO_CUDA_REASON};
  return none;
}

const char* cuda_build() { return ""; }

DeviceMemory::DeviceMemory(size_t /*bytes*/) { refuse_without_cuda("device memory"); }
DeviceMemory::~DeviceMemory() = default;
void DeviceMemory::write(const void* /*from*/, size_t /*bytes*/, size_t /*at*/) const {
  refuse_without_cuda("device memory");
}
void DeviceMemory::read(void* /*to*/, size_t /*bytes*/, size_t /*at*/) const { refuse_without_cuda("device memory"); }
void DeviceMemory::fill(int /*byte*/, size_t /*bytes*/, size_t /*at*/) const { refuse_without_cuda("device memory"); }

CudaStream::CudaStream() { refuse_without_cuda("a stream"); }
CudaStream::~CudaStream() = default;
void CudaStream::wait() const { refuse_without_cuda("a stream"); }

double device_seconds(const CudaStream& /*stream*/, const std::function<void()>& /*body*/) {
  refuse_without_cuda("a time on the device");
}

CudaGraph::CudaGraph(const CudaStream& /*stream*/, const std::function<void()>& /*body*/) {
  refuse_without_cuda("a graph");
}
CudaGraph::~CudaGraph() = default;
void CudaGraph::launch(const CudaStream& /*stream*/) const { refuse_without_cuda("a graph"); }

}  // namespace longhaul
