// What this machine can do at best: the limits that kernels are measured against.
#pragma once

namespace longhaul::cli {

/// fp32 multiply-adds in registers with the widest vectors that LONGHAUL_ISA allows, in flop/s over all `threads`.
double fma_peak(int threads);

/// Reading memory far larger than the caches, in bytes/s over all `threads`.
double read_bandwidth(int threads);

/// Reads twice the last cache level, so that the next call finds its inputs in memory.
void evict_caches(int threads);

}  // namespace longhaul::cli
