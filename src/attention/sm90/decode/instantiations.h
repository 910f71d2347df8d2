// Every decode kernel that is built. Adding one: a line here, a file in instantiations/.
#pragma once

#include <cuda_runtime.h>

#include "attention/sm90/decode/kernel_params.h"
#include "longhaul/dtype.h"

namespace longhaul::sm90 {

using DecodeLauncher = cudaError_t (*)(const DecodeKernelParams&, cudaStream_t);

cudaError_t decode_bf16_d128_dense(const DecodeKernelParams&, cudaStream_t);
cudaError_t decode_bf16_d128_skip(const DecodeKernelParams&, cudaStream_t);
cudaError_t decode_bf16_d64_dense(const DecodeKernelParams&, cudaStream_t);
cudaError_t decode_bf16_d64_skip(const DecodeKernelParams&, cudaStream_t);
cudaError_t decode_f16_d128_dense(const DecodeKernelParams&, cudaStream_t);
cudaError_t decode_f16_d128_skip(const DecodeKernelParams&, cudaStream_t);
cudaError_t decode_f16_d64_dense(const DecodeKernelParams&, cudaStream_t);
cudaError_t decode_f16_d64_skip(const DecodeKernelParams&, cudaStream_t);

struct DecodeInstantiation {
  DType dtype;
  int head_size;
  bool skip;
  DecodeLauncher launch;
};

inline constexpr DecodeInstantiation kDecodeInstantiations[] = {
    {DType::bf16, 128, false, decode_bf16_d128_dense}, {DType::bf16, 128, true, decode_bf16_d128_skip},
    {DType::bf16, 64, false, decode_bf16_d64_dense},   {DType::bf16, 64, true, decode_bf16_d64_skip},
    {DType::f16, 128, false, decode_f16_d128_dense},   {DType::f16, 128, true, decode_f16_d128_skip},
    {DType::f16, 64, false, decode_f16_d64_dense},     {DType::f16, 64, true, decode_f16_d64_skip},
};

}  // namespace longhaul::sm90
