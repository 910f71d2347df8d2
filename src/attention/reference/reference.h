// The oracle: attention in double precision, with the skip rule, block by block in a stated order and voting group.
#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/attention.h"
#include "longhaul/visit_order.h"

namespace longhaul {

struct ReferenceOptions {
  Phase phase = Phase::prefill;
  /// Any voting group. group_rows 0 in decode: all query tokens and all heads of the KV head vote together, as the kernels do;
  /// in prefill group_rows >= 1 rows of one query head.
  Geometry geometry{64, 16, 16};
  VisitOrder order = VisitOrder::newest_first;
  /// Follow the kernels' key splits in decode (each seeded from the newest tile); false: one part.
  bool kernel_splits = true;
  bool measure_dropped_mass = false;  ///< costs a dense pass more
};

struct ReferenceResult {
  std::vector<double> output;        // [total_q, heads_q, dv]
  std::vector<double> lse;           // [heads_q, total_q]
  std::vector<double> dropped_mass;  // [heads_q, total_q], share of the dense softmax mass that the skipped blocks held
  std::vector<int64_t> counters;     // [voting_heads, 4]
  SkipMaskShape mask_shape{};        // in the blocks and groups of `geometry`
  std::vector<uint8_t> skip_mask;    // [voting_heads, groups, blocks]: 0 not visited, 1 computed, 2 skipped
};

/// Reads the inputs, lambda and rule of `args`; ignores its output, lse, counters, skip_mask, probes, workspace and threads (they
/// may be absent). Checks `args` as the kernels do.
ReferenceResult reference_attention(const AttentionArgs& args, const ReferenceOptions& options);

}  // namespace longhaul
