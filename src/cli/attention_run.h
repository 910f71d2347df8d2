// Outputs and workspace of a call, and what its counters say.
#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/attention.h"

namespace longhaul::cli {

struct RunWants {
  bool counters = true;
  bool lse = true;
  bool skip_mask = false;
};

/// Owns output, log-sum-exp, counters, mask and workspace for calls with given inputs.
class AttentionRun {
 public:
  AttentionRun(const AttentionArgs& inputs, Phase phase, const RunWants& wants = {});
  AttentionRun(const AttentionRun&) = delete;
  AttentionRun& operator=(const AttentionRun&) = delete;

  void run();  ///< resets the counters first

  AttentionArgs& args() { return args_; }
  const AttentionArgs& args() const { return args_; }
  Phase phase() const { return phase_; }
  int64_t voting_heads() const;
  std::vector<double> output() const;  ///< [total_q, heads_q, dv]
  const std::vector<float>& lse() const { return lse_; }
  const std::vector<int64_t>& counters() const { return counters_; }
  const std::vector<uint8_t>& mask() const { return mask_; }

 private:
  AttentionArgs args_;
  Phase phase_;
  std::vector<std::byte> output_, workspace_;
  std::vector<float> lse_;
  std::vector<int64_t> counters_;
  std::vector<uint8_t> mask_;
};

int64_t voting_heads(const AttentionArgs& args, Phase phase);

/// Skipped over visible scores, of all heads.
double sparsity(const std::vector<int64_t>& counters);
/// The same of each voting head.
std::vector<double> sparsity_by_head(const std::vector<int64_t>& counters);

/// How far `actual` is from `expected`, both [total_q, heads_q, dv].
struct OutputError {
  double relative_rms = 0;  ///< rms of the difference over rms of the expected output
  double worst_row = 0;     ///< largest norm of a row's difference over that row's expected norm
  double largest = 0;       ///< largest absolute difference of an element
};
OutputError output_error(const std::vector<double>& actual, const std::vector<double>& expected, int64_t row_size);

}  // namespace longhaul::cli
