// Thread block clusters: the peer's shared memory and barriers (PTX ISA 9.7.13.4, 9.7.8.23).
#pragma once

#include <cstdint>

#include "ptx/mbarrier.h"

namespace longhaul::ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of all blocks of the cluster that have not ended; orders shared memory.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Where the block of this rank keeps what this block keeps at `pointer`.
__device__ __forceinline__ uint32_t peer_address(const void* pointer, uint32_t rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

/// Arrival that orders nothing between blocks: for giving back memory that only the tensor cores have read. The cluster
/// scope would cost a memory barrier, which took a quarter of the prefill kernel's time.
__device__ __forceinline__ void mbarrier_arrive_at(Mbarrier* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer_address(barrier, rank)) : "memory");
}

/// Arrival that orders this thread's accesses before it for whoever waits with mbarrier_wait_in_cluster().
__device__ __forceinline__ void mbarrier_release_at(Mbarrier* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_address(barrier, rank))
               : "memory");
}
__device__ __forceinline__ void mbarrier_wait_in_cluster(Mbarrier* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

/// Writes a number into another block's memory; that block's barrier counts its 4 bytes, and so orders it.
__device__ __forceinline__ void send(int* pointer, Mbarrier* barrier, uint32_t rank, int value) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(
                   peer_address(pointer, rank)),
               "r"(value), "r"(peer_address(barrier, rank))
               : "memory");
}

}  // namespace longhaul::ptx
