#include "attention/sm90/decode/instantiations.h"
#include "attention/sm90/decode/kernel.cuh"
#include "attention/sm90/decode/launch.cuh"

namespace longhaul::sm90 {

cudaError_t decode_bf16_d128_skip(const DecodeKernelParams& p, cudaStream_t stream) {
  using Config = DecodeConfig<__nv_bfloat16, 128, true>;
  return launch_early(decode_kernel<Config>, p.multiprocessors, Config::kThreads, Config::kSharedBytes, stream, p);
}

}  // namespace longhaul::sm90
