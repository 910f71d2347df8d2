#define LONGHAUL_ISA amx_emulated
#include "attention/cpu/simd_portable.h"

#define LONGHAUL_TILES "attention/cpu/tiles_emulated.h"
#define LONGHAUL_VECTOR_KERNELS kPortableKernels
#include "attention/cpu/kernels_tiles-inl.h"

namespace longhaul {
const CpuKernels kAmxEmulatedKernels = LONGHAUL_KERNEL_TABLE;
}  // namespace longhaul
