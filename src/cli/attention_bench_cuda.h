// One shape on the current CUDA device: dense, lambda 0 and several sparsities, in one interleaved run of one stream.
#pragma once

#include "cli/attention_bench.h"

namespace longhaul::cli {

/// What `longhaul bench attention --device cuda` measures.
struct CudaBench {
  BenchCase bench;
  bool captured = false;  ///< the shipped activations instead of generated data
  std::string data;       ///< in words
  std::string timing;     ///< what a sample of the times is, in words
};

/// Of BenchLine::rate / 1e12.
const char* cuda_rate_unit(const CudaBench& bench);

/// Throws Unsupported where there is no device.
BenchOutcome run_cuda_bench(CudaBench& bench);

std::vector<Json> cuda_bench_rows(const CudaBench& bench, const BenchOutcome& outcome);

}  // namespace longhaul::cli
