// The kernel that joins the parts of heads that several blocks shared.
#pragma once

#include <cuda_runtime.h>

#include "attention/sm90/decode/kernel_params.h"
#include "longhaul/dtype.h"

namespace longhaul::sm90 {

/// Enqueues it behind the decode kernel.
cudaError_t launch_decode_merge(const DecodeKernelParams& p, DType dtype, int head_size, cudaStream_t stream);

}  // namespace longhaul::sm90
