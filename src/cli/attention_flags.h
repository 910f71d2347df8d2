// Every option of the attention contract as a flag.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/support/json.h"
#include "longhaul/attention.h"

namespace longhaul::cli {

struct AttentionFlags {
  std::string phase = "prefill", rule;
  bool causal = false, full = false, batch_invariant = false;
  int64_t window_left = -1;
  float soft_cap = 0, softmax_scale = 0;
  std::optional<double> lambda, scale_factor;
  std::string config;
  int layer = -1;
  bool extrapolate = false;
  int threads = 0;

  void add_phase(CLI::App& command);
  void add_mask_and_scores(CLI::App& command);
  void add_skipping(CLI::App& command);
  void add_threads(CLI::App& command);
  void add_rule(CLI::App& command);

  Phase phase_value() const;
  SkipRule rule_value() const;
  /// Sets what the flags say; the tensors of `args` must be there already, since a factor needs the context lengths. A
  /// lambda or softmax scale that `args` brings from its file stays unless a flag gives another; `notes` say which.
  /// Where one lambda a request comes out, `lambda_storage` [batch, heads_q] holds it and `note` says so.
  void apply(AttentionArgs& args, std::vector<float>& lambda_storage, std::vector<std::string>& notes) const;

 private:
  void apply_softmax_scale(AttentionArgs& args, std::vector<std::string>& notes) const;
};

/// lambda = factor / context length of each request, cut to 1 (then `notes` says so). Several requests: `storage` keeps
/// the lambdas.
void apply_scale_factor(double factor, AttentionArgs& args, std::vector<float>& storage,
                        std::vector<std::string>& notes);

/// Context length of each request: tokens it has in the cache, this chunk included.
std::vector<int64_t> context_lengths(const AttentionArgs& args);

/// The voting group of this build's kernels, also before there is an output to ask attention_geometry() with.
Geometry kernel_geometry(Phase phase);

/// For result files.
Json lambda_json(const AttentionArgs& args);
Json geometry_json(const Geometry& geometry);
std::string rule_name(SkipRule rule);
std::string phase_name(Phase phase);
std::string geometry_text(const Geometry& geometry);

}  // namespace longhaul::cli
