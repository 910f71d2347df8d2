#include "attention/cpu/simd_portable.h"

#include "attention/cpu/kernels_all-inl.h"

namespace longhaul {
const CpuKernels kPortableKernels = LONGHAUL_KERNEL_TABLE;
}  // namespace longhaul
