#include "attention/sm90/prefill/instantiations.h"
#include "attention/sm90/prefill/launch.cuh"

namespace longhaul::sm90 {

cudaError_t prefill_f16_d128_skip(const PrefillKernelParams& p, cudaStream_t stream) {
  return launch_prefill<PrefillConfig<__half, 128, true>>(p, stream);
}

}  // namespace longhaul::sm90
