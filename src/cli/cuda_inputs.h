// The inputs of a call, copied to the current CUDA device.
#pragma once

#include <vector>

#include "core/cuda/memory.h"
#include "longhaul/attention.h"

namespace longhaul::cli {

class CudaInputs {
 public:
  explicit CudaInputs(const AttentionArgs& host);
  CudaInputs(const CudaInputs&) = delete;
  CudaInputs& operator=(const CudaInputs&) = delete;
  /// As those of the host, without results, workspace and threads.
  const AttentionArgs& args() const { return args_; }

 private:
  AttentionArgs args_;
  std::vector<DeviceMemory> memory_;
};

}  // namespace longhaul::cli
