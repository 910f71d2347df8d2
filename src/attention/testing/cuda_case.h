// Runs a case on the current CUDA device: its tensors go there and its results come back.
#pragma once

#include <string>
#include <vector>

#include "attention/testing/attention_case.h"
#include "core/cuda/memory.h"

namespace longhaul::conformance {

/// Whether this build and machine can run such cases; `why` gets the end of a sentence where not.
bool cuda_runs(std::string& why);

/// Bytes of the host on the device, between two canaries.
class CudaCopy {
 public:
  CudaCopy(const char* name, uint8_t* host, size_t bytes);
  void* data() const;
  const char* name() const { return name_; }
  std::vector<uint8_t> bytes() const;  ///< what the device holds now
  bool unchanged() const;
  void renew() const;  ///< what the host holds now
  bool canaries_intact() const;

 private:
  const char* name_;
  uint8_t* host_;
  size_t bytes_;
  DeviceMemory memory_;
};

class CudaRun {
 public:
  /// Clears the results of the case and copies all it has.
  explicit CudaRun(AttentionCase& test);

  AttentionArgs args;  ///< of the device; may be changed between launches
  const CudaStream stream;

  void queue() { attention(args, test_.spec.phase); }
  /// With results as they are on the host, and a workspace full of ones: what it holds before is nobody's business.
  void launch();
  /// Copies the results to the case.
  void fetch();
  /// Empty, or whose memory was written to that must not be.
  std::string trespass() const;
  /// The copy of a tensor; throws std::out_of_range where the case has none of that name.
  const CudaCopy& input(const std::string& name) const;
  std::vector<std::vector<uint8_t>> result_bytes() const;
  const std::vector<CudaCopy>& results() const { return results_; }

 private:
  AttentionCase& test_;
  std::vector<CudaCopy> inputs_, results_;
  std::vector<GuardedTensor*> tensors_;  // of results_
  DeviceMemory workspace_;
};

/// Runs the case twice; its results are those of the second run. Returns what is wrong whatever the oracle says, or
/// nothing: bytes before or behind a result or in an input were written, or the runs gave different bits.
std::string run_on_cuda(AttentionCase& test);

}  // namespace longhaul::conformance
