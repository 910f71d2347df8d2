// Whether two tensor views share memory.
#pragma once

#include "longhaul/tensor.h"

namespace longhaul {

/// Whether an element of `result` and one of `input` share a byte. The elements of `result` must not overlap each
/// other. Exact also for views that interleave, as query and output of one fused buffer do; a few comparisons where the
/// spans of the two lie apart, which is nearly always, else a search for each row of `input`. Allocates nothing.
bool overlap(const TensorView& result, const TensorView& input);

}  // namespace longhaul
