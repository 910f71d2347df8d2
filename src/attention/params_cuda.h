// Checks of a call by the device of its tensors. Pure: they read no device memory and ask no device.
#pragma once

#include "attention/params.h"

namespace longhaul {

/// Throws InvalidArgument naming the tensor that is not where query is. Needs query to be given.
void check_one_device(const AttentionArgs& args);

/// Throw Unsupported, or InvalidArgument on a misaligned address or stride, where no CUDA kernel can take the call.
/// check_cuda_inputs also gives dimensions of one element the stride of a row-major tensor.
void check_cuda_inputs(const AttentionArgs& args, AttentionParams& p);
void check_cuda_results(const AttentionArgs& args);

/// Throws Unsupported unless the tensors are on the CPU; `reader` is who must read them.
void require_cpu(const AttentionParams& p, const char* reader);

}  // namespace longhaul
