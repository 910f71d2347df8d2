// Bulk copies of tensor boxes between global and shared memory (cp.async.bulk.tensor, PTX ISA 9.7.9.25).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ptx/mbarrier.h"

namespace longhaul::ptx {

/// How long the L2 should keep what a copy reads; encoded policies of createpolicy.fractional with fraction 1.
enum class CachePolicy : uint64_t {
  first = 0x12F0000000000000,  // evicted first: read once
  last = 0x14F0000000000000,   // evicted last: read by many blocks
};

/// Fetches a map that copies will need soon.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Starts the copy of one box of a rank-4 map; `barrier` counts its bytes. Elements outside the tensor become zero.
__device__ __forceinline__ void load_box(const CUtensorMap* map, void* destination, Mbarrier* barrier, int c0, int c1,
                                         int c2, int c3, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(static_cast<uint64_t>(policy))
      : "memory");
}

/// The same of a rank-5 map.
__device__ __forceinline__ void load_box(const CUtensorMap* map, void* destination, Mbarrier* barrier, int c0, int c1,
                                         int c2, int c3, int c4, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "l"(static_cast<uint64_t>(policy))
      : "memory");
}

/// The same of a rank-4 map into every block of the cluster in `ranks` (bits), at the same place; each block's barrier
/// counts the bytes.
__device__ __forceinline__ void load_box_to_cluster(const CUtensorMap* map, void* destination, Mbarrier* barrier,
                                                    int c0, int c1, int c2, int c3, uint16_t ranks,
                                                    CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(ranks),
      "l"(static_cast<uint64_t>(policy))
      : "memory");
}

}  // namespace longhaul::ptx
