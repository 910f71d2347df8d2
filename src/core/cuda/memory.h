// Device memory, streams and times, for code that knows no CUDA headers: tests, `verify` and `bench`. In a build
// without CUDA every function throws Unsupported.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

namespace longhaul {

/// Memory of the current device. Throws System where CUDA refuses.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }
  /// Both wait: what was queued before on any stream is done, and so is the copy.
  void write(const void* from, size_t bytes, size_t at = 0) const;
  void read(void* to, size_t bytes, size_t at = 0) const;
  void fill(int byte, size_t bytes, size_t at = 0) const;

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// A stream of the current device.
class CudaStream {
 public:
  CudaStream();
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  void* get() const { return stream_; }
  void wait() const;

 private:
  void* stream_ = nullptr;
};

/// Seconds that what `body` queues on the stream takes on the device.
double device_seconds(const CudaStream& stream, const std::function<void()>& body);

/// What `body` queues on a stream, to be run again any number of times.
class CudaGraph {
 public:
  CudaGraph(const CudaStream& stream, const std::function<void()>& body);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(const CudaStream& stream) const;

 private:
  void* graph_ = nullptr;
};

}  // namespace longhaul
