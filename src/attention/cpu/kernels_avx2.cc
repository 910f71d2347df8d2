#include "attention/cpu/simd_avx2.h"

#include "attention/cpu/kernels_all-inl.h"

namespace longhaul {
const CpuKernels kAvx2Kernels = LONGHAUL_KERNEL_TABLE;
}  // namespace longhaul
