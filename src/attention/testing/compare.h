// Holds a kernel's results against the oracle's, with tolerances derived from fp32 arithmetic and the dtypes, not
// guessed.
#pragma once

#include <string>

#include "attention/reference/reference.h"
#include "attention/testing/attention_case.h"

namespace longhaul::conformance {

/// The oracle's options for judging the kernels on this case: their geometry and splits, and the error of their scores.
ReferenceOptions oracle_options(const AttentionCase& test);

/// Empty if all agree: output, log-sum-exp, counters, skip mask, and the bytes around them; otherwise one line about
/// the first difference.
std::string compare(const AttentionCase& test, const ReferenceResult& oracle);

/// Draws cases from the spec until none of their skip decisions is closer than fp32 can tell, so that mask and output
/// must agree exactly and within tolerance; returns the oracle's result too. `redraws` counts the cases that were
/// thrown away.
struct JudgedCase {
  AttentionCase test;
  ReferenceResult oracle;
  int redraws = 0;
};
JudgedCase judged_case(CaseSpec spec);

}  // namespace longhaul::conformance
