// The oracle: attention in double precision, with the skip rule, block by block in a stated order and voting group.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhaul/attention.h"
#include "longhaul/visit_order.h"

namespace longhaul {

struct ReferenceOptions {
  Phase phase = Phase::prefill;
  /// Any voting group. group_rows 0 in decode: all query tokens and all heads of the KV head vote together, as the
  /// kernels do; in prefill group_rows >= 1 rows of one query head.
  Geometry geometry{64, 16, 16};
  VisitOrder order = VisitOrder::newest_first;
  /// Follow the kernels' key splits in decode (each seeded from the newest tile); false: one part.
  bool kernel_splits = true;
  /// Above 0: those of the Hopper decode kernel on so many multiprocessors; 0: those of the CPU kernels.
  int sm90_multiprocessors = 0;
  bool measure_dropped_mass = false;

  /// For comparing kernels that compute in fp32: their scores differ by at most score_error * scale * |q| |k| +
  /// decision_error in a comparison of the rule. Blocks whose decision is closer than that are counted in `ambiguous`.
  /// 0: not counted.
  double score_error = 0, decision_error = 0;
  /// Fills the magnitudes that rounding errors scale with: score_size and abs_output.
  bool measure_sizes = false;

  /// Told the voting groups done and all of them after each; one call at a time, from any of the threads.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

struct ReferenceResult {
  std::vector<double> output;        // [total_q, heads_q, dv]
  std::vector<double> lse;           // [heads_q, total_q]
  std::vector<double> dropped_mass;  // [heads_q, total_q], share of the dense softmax mass that the skipped blocks held
  std::vector<double> score_size;    // [heads_q, total_q], scale * |q| * the largest |k| the row sees
  std::vector<double> abs_output;    // [total_q, heads_q, dv], the output with |v| in place of v
  int64_t ambiguous = 0;             // blocks that fp32 scores might decide otherwise
  std::vector<int64_t> counters;     // [voting_heads, 4]
  SkipMaskShape mask_shape{};        // in the blocks and groups of `geometry`
  std::vector<uint8_t> skip_mask;    // [voting_heads, groups, blocks]: 0 not visited, 1 computed, 2 skipped
};

/// Row semantics. A row that sees no key, or only scores of -inf, gives output 0 and lse -inf, sinks or not. A row that
/// keeps a score of NaN or +inf gives NaN. Weights of 0 are multiplied like any other (0 * inf is NaN); keys that a row
/// does not see never touch it. Counters: V bytes not read are those of decode; prefill kernels share a V read among
/// groups and heads in ways of their own, so prefill leaves them 0. K bytes are 0.
///
/// Reads the inputs, lambda and rule of `args`; ignores its output, lse, counters, skip_mask, probes, workspace and
/// threads (they may be absent). Checks `args` as the kernels do.
ReferenceResult reference_attention(const AttentionArgs& args, const ReferenceOptions& options);

}  // namespace longhaul
