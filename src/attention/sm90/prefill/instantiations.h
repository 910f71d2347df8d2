// Every prefill kernel that is built. Adding one: a line here, a file in instantiations/.
#pragma once

#include <cuda_runtime.h>

#include "attention/sm90/prefill/kernel_params.h"
#include "longhaul/dtype.h"

namespace longhaul::sm90 {

using PrefillLauncher = cudaError_t (*)(const PrefillKernelParams&, cudaStream_t);

// bfloat16 and float16, head sizes 128 and 64; dense and skipping.
cudaError_t prefill_bf16_d128_dense(const PrefillKernelParams&, cudaStream_t);
cudaError_t prefill_bf16_d128_skip(const PrefillKernelParams&, cudaStream_t);
cudaError_t prefill_bf16_d64_dense(const PrefillKernelParams&, cudaStream_t);
cudaError_t prefill_bf16_d64_skip(const PrefillKernelParams&, cudaStream_t);
cudaError_t prefill_f16_d128_dense(const PrefillKernelParams&, cudaStream_t);
cudaError_t prefill_f16_d128_skip(const PrefillKernelParams&, cudaStream_t);
cudaError_t prefill_f16_d64_dense(const PrefillKernelParams&, cudaStream_t);
cudaError_t prefill_f16_d64_skip(const PrefillKernelParams&, cudaStream_t);

struct PrefillInstantiation {
  DType dtype;
  int head_size;
  bool skip;
  PrefillLauncher launch;
};

inline constexpr PrefillInstantiation kPrefillInstantiations[] = {
    {DType::bf16, 128, false, prefill_bf16_d128_dense}, {DType::bf16, 128, true, prefill_bf16_d128_skip},
    {DType::bf16, 64, false, prefill_bf16_d64_dense},   {DType::bf16, 64, true, prefill_bf16_d64_skip},
    {DType::f16, 128, false, prefill_f16_d128_dense},   {DType::f16, 128, true, prefill_f16_d128_skip},
    {DType::f16, 64, false, prefill_f16_d64_dense},     {DType::f16, 64, true, prefill_f16_d64_skip},
};

}  // namespace longhaul::sm90
