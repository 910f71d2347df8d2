// The data of a benchmark on the current CUDA device, and calls and times on it.
#pragma once

#include <memory>
#include <vector>

#include "cli/attention_bench_cuda.h"
#include "cli/cuda_inputs.h"
#include "core/cuda/memory.h"

namespace longhaul::cli {

class CudaSession {
 public:
  /// Makes or reads the data, and says in `cuda` what it is.
  explicit CudaSession(CudaBench& cuda);
  CudaSession(const CudaSession&) = delete;
  CudaSession& operator=(const CudaSession&) = delete;

  /// Counters of one call; a lambda below 0: none.
  std::vector<int64_t> count(double lambda) const;
  /// Some 4 million elements of the output, in whole rows, evenly spaced.
  std::vector<double> output(double lambda) const;
  /// Seconds of a call with each lambda, `repeat` times after a warm-up, in turn.
  InterleavedTimes time(const std::vector<double>& lambdas, int repeat) const;
  /// Work of the whole job, skipped or not: operations in prefill, bytes of key and value in decode.
  double job() const;

 private:
  void take(const AttentionArgs& host);
  void use_captured();
  AttentionArgs call(double lambda, bool counters) const;
  /// Queues `calls_` calls, each on the next copy of the cache.
  void queue(double lambda) const;

  CudaBench& cuda_;
  Phase phase_;
  CudaStream stream_;
  std::unique_ptr<CudaInputs> inputs_;
  AttentionArgs args_;
  int calls_ = 1;  ///< in a sample
  double cache_bytes_ = 0;
  size_t output_bytes_ = 0;
  DeviceMemory output_, counters_, workspace_;
};

}  // namespace longhaul::cli
