// The prefill kernel: persistent blocks of one producer and two consumer warpgroups.
#pragma once

#include "attention/sm90/prefill/consumer.cuh"
#include "attention/sm90/prefill/producer.cuh"
#include "ptx/sync.h"

namespace longhaul::sm90 {

template <class Shared>
__device__ inline void init_barriers(Shared& shared, int stages, int consumers, int ranks) {
  ptx::mbarrier_init(&shared.query_full, 1);
  ptx::mbarrier_init(&shared.query_empty, consumers);
  for (int i = 0; i < stages; ++i) {
    ptx::mbarrier_init(&shared.key_full[i], 1);
    ptx::mbarrier_init(&shared.value_full[i], 1);
    ptx::mbarrier_init(&shared.key_empty[i], consumers * ranks);
    ptx::mbarrier_init(&shared.value_empty[i], consumers * ranks);
  }
  for (int i = 0; i < 2; ++i) {
    ptx::mbarrier_init(&shared.item_full[i], 1);
    ptx::mbarrier_init(&shared.item_empty[i], consumers * 4);
    ptx::mbarrier_init(&shared.draw_full[i], 1);
    ptx::mbarrier_init(&shared.draw_empty[i], ranks);
  }
  for (int i = 0; i < consumers; ++i) shared.visible_tiles[i] = shared.skipped_blocks[i] = 0;
  ptx::fence_mbarrier_init();
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1) prefill_kernel(const __grid_constant__ PrefillKernelParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(raw);
  if (threadIdx.x == 0) {
    if (ptx::shared_address(raw) % 1024 != 0) __trap();  // the swizzle pattern counts on it
    init_barriers(shared, Config::kStages, Config::kConsumers, p.ranks);
  }
  ptx::cluster_sync();
  if (threadIdx.x < 128) {
    ptx::lower_registers<Config::kProducerRegisters>();
    if (threadIdx.x < 32)
      Producer<Config>{shared, p, static_cast<int>(ptx::cluster_rank()), static_cast<int>(threadIdx.x)}.run();
  } else {
    ptx::raise_registers<Config::kConsumerRegisters>();
    Consumer<Config>(shared, p, static_cast<int>(threadIdx.x) - 128).run();
  }
  ptx::cluster_sync();  // a block's shared memory must outlive what its peer sends there
}

}  // namespace longhaul::sm90
