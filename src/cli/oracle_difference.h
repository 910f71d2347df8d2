// How far a kernel's result is from the oracle's.
#pragma once

#include "attention/reference/reference.h"
#include "cli/attention_run.h"
#include "cli/support/json.h"

namespace longhaul::cli {

/// Output, log-sum-exp, sparsity; where both used the same order and voting group, also counters and mask.
Json compare_with_oracle(const AttentionRun& kernel, const ReferenceResult& oracle, const ReferenceOptions& options);
void print_difference(const Json& difference);

}  // namespace longhaul::cli
