#include "attention/sm90/prefill/instantiations.h"
#include "attention/sm90/prefill/launch.cuh"

namespace longhaul::sm90 {

cudaError_t prefill_bf16_d64_skip(const PrefillKernelParams& p, cudaStream_t stream) {
  return launch_prefill<PrefillConfig<__nv_bfloat16, 64, true>>(p, stream);
}

}  // namespace longhaul::sm90
