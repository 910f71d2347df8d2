// Kernels that start while the one before them in the stream still runs (griddepcontrol, PTX ISA 9.7.13.13).
#pragma once

namespace longhaul::ptx {

/// Waits until the kernels this one depends on are complete and their writes visible. Before it nothing that they write
/// may be read, and nothing that they read may be written.
__device__ __forceinline__ void wait_for_earlier_grids() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next kernel in the stream start as soon as there is room for it.
__device__ __forceinline__ void let_later_grids_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace longhaul::ptx
