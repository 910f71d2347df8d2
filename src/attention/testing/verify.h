// Every kernel against the oracle: all pairs of contract options on every instruction set the machine has.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/cpu_features.h"
#include "longhaul/tensor.h"

namespace longhaul::conformance {

struct VerifyOptions {
  uint64_t seed = 1;
  Device device = Device::cpu;
  std::optional<Isa> isa;   ///< CPU: one instruction set instead of all usable ones
  std::optional<int> only;  ///< one case of the list, to reproduce a failure
  int every = 1;            ///< only every n-th case of the list
  int repeat = 1;           ///< covering arrays, each from the next seed
  bool stop_at_first_failure = false;
  /// Called after every case with the cases done and their total.
  std::function<void(int done, int total)> progress;
};

struct VerifyFailure {
  std::string isa;  ///< or "cuda"
  uint64_t seed;
  int index;         ///< with seed and isa: VerifyOptions that run this case alone
  std::string spec;  ///< its options in one line
  std::string what;  ///< the first difference, or the exception
};

struct VerifyReport {
  int cases = 0;  ///< comparisons with the oracle: cases x instruction sets
  std::vector<std::string> isas;
  int64_t visible = 0, skipped = 0;  ///< scores, of the cases with a threshold
  int redraws = 0;                   ///< cases drawn again because a decision was closer than fp32 can tell
  double seconds = 0;
  std::vector<VerifyFailure> failures;
};

/// Throws Unsupported where the device is CUDA and this build or machine has none that the kernels serve.
VerifyReport run_verify(const VerifyOptions& options);

}  // namespace longhaul::conformance
