#include "core/cuda/memory.h"

#include <cuda_runtime_api.h>

#include "core/cuda/check.h"

namespace longhaul {
namespace {

cudaStream_t stream_of(const CudaStream& stream) { return static_cast<cudaStream_t>(stream.get()); }

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

void synchronize() { check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
}

DeviceMemory::~DeviceMemory() { cudaFree(data_); }

void DeviceMemory::write(const void* from, size_t bytes, size_t at) const {
  if (bytes == 0) return;
  synchronize();
  check_cuda(cudaMemcpy(data() + at, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  synchronize();
}

void DeviceMemory::read(void* to, size_t bytes, size_t at) const {
  synchronize();
  if (bytes > 0) check_cuda(cudaMemcpy(to, data() + at, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

void DeviceMemory::fill(int byte, size_t bytes, size_t at) const {
  if (bytes == 0) return;
  synchronize();
  check_cuda(cudaMemset(data() + at, byte, bytes), "cudaMemset");
  synchronize();
}

CudaStream::CudaStream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  stream_ = stream;
}
CudaStream::~CudaStream() { cudaStreamDestroy(stream_of(*this)); }
void CudaStream::wait() const { check_cuda(cudaStreamSynchronize(stream_of(*this)), "cudaStreamSynchronize"); }

double device_seconds(const CudaStream& stream, const std::function<void()>& body) {
  const Event begin, end;
  check_cuda(cudaEventRecord(begin.get(), stream_of(stream)), "cudaEventRecord");
  body();
  check_cuda(cudaEventRecord(end.get(), stream_of(stream)), "cudaEventRecord");
  check_cuda(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

CudaGraph::CudaGraph(const CudaStream& stream, const std::function<void()>& body) {
  check_cuda(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {  // a stream must not be left capturing
    if (cudaStreamEndCapture(stream_of(stream), &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream_of(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, "cudaGraphInstantiate");
  graph_ = executable;
}
CudaGraph::~CudaGraph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)); }
void CudaGraph::launch(const CudaStream& stream) const {
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream_of(stream)), "cudaGraphLaunch");
}

}  // namespace longhaul
