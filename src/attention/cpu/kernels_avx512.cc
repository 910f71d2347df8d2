#include "attention/cpu/simd_avx512.h"

#include "attention/cpu/kernels_all-inl.h"

namespace longhaul {
const CpuKernels kAvx512Kernels = LONGHAUL_KERNEL_TABLE;
}  // namespace longhaul
