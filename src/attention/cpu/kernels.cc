#include "attention/cpu/kernels.h"

namespace longhaul {

const CpuKernels& cpu_kernels(Isa isa) {
  if (isa == Isa::amx_emulated) return kAmxEmulatedKernels;
#ifdef LONGHAUL_HAVE_AMX
  if (isa == Isa::amx) return kAmxKernels;
#endif
#ifdef LONGHAUL_HAVE_AVX512
  if (isa == Isa::avx512) return kAvx512Kernels;
#endif
#ifdef LONGHAUL_HAVE_AVX2
  if (isa == Isa::avx2) return kAvx2Kernels;
#endif
  (void)isa;
  return kPortableKernels;
}

}  // namespace longhaul
