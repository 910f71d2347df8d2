// The inputs of a call, copied to the current CUDA device.
#pragma once

#include <vector>

#include "core/cuda/memory.h"
#include "longhaul/attention.h"

namespace longhaul::cli {

class CudaInputs {
 public:
  /// `copies` of key and value, so that calls in turn can read more than a cache holds.
  explicit CudaInputs(const AttentionArgs& host, int copies = 1);
  CudaInputs(const CudaInputs&) = delete;
  CudaInputs& operator=(const CudaInputs&) = delete;
  /// As those of the host, without results, workspace and threads.
  const AttentionArgs& args() const { return args_; }
  int copies() const { return copies_; }
  /// The given copy in place of the first.
  void use_copy(int copy, AttentionArgs& args) const;

 private:
  /// Copies a tensor `copies` times, returns how many bytes lie from one to the next.
  size_t take(TensorView& view, int copies);

  AttentionArgs args_;
  int copies_;
  size_t key_step_ = 0, value_step_ = 0;
  std::vector<DeviceMemory> memory_;
};

}  // namespace longhaul::cli
