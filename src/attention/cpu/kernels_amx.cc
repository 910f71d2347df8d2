#define LONGHAUL_ISA amx
#include "attention/cpu/simd_avx512.h"

#define LONGHAUL_TILES "attention/cpu/tiles_amx.h"
#define LONGHAUL_VECTOR_KERNELS kAvx512Kernels
#include "attention/cpu/kernels_tiles-inl.h"

namespace longhaul {
const CpuKernels kAmxKernels = LONGHAUL_KERNEL_TABLE;
}  // namespace longhaul
