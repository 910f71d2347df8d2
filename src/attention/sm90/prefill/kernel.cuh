// The prefill kernel: persistent blocks of one producer warp, three warps that report, and three consumer
// warpgroups.
#pragma once

#include "attention/sm90/prefill/consumer.cuh"
#include "attention/sm90/prefill/producer.cuh"
#include "attention/sm90/prefill/report.cuh"
#include "ptx/sync.h"

namespace longhaul::sm90 {

template <class Config>
__device__ inline void init_barriers(typename Config::Shared& shared, int ranks, bool reporting) {
  constexpr int consumers = Config::kConsumers, warps = 4 * consumers;
  ptx::mbarrier_init(&shared.query_full, 1);
  ptx::mbarrier_init(&shared.query_empty, warps);
  for (int i = 0; i < Config::kStages; ++i) {
    ptx::mbarrier_init(&shared.tile_full[i], 1);
    ptx::mbarrier_init(&shared.tile_empty[i], warps * ranks);
  }
  for (int i = 0; i < 2; ++i) {
    ptx::mbarrier_init(&shared.item_full[i], 1);
    ptx::mbarrier_init(&shared.item_empty[i], warps + (reporting ? consumers : 0));
    ptx::mbarrier_init(&shared.draw_full[i], 1);
    ptx::mbarrier_init(&shared.draw_empty[i], ranks);
  }
  for (int group = 0; group < consumers; ++group) {
    ptx::mbarrier_init(&shared.vote_full[group], 4);
    for (int i = 0; i < Config::kReports; ++i) {
      ptx::mbarrier_init(&shared.report_full[group][i], 1);
      ptx::mbarrier_init(&shared.report_empty[group][i], 1);
    }
  }
  ptx::fence_mbarrier_init();
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1) prefill_kernel(const __grid_constant__ PrefillKernelParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(raw);
  if (threadIdx.x == 0) {
    if (ptx::shared_address(raw) % 1024 != 0) __trap();  // the swizzle pattern counts on it
    init_barriers<Config>(shared, p.ranks, reporting<Config>(p));
  }
  ptx::cluster_sync();
  if (threadIdx.x < 128) {
    ptx::lower_registers<Config::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (warp == 0) {
      Producer<Config>{shared, p, static_cast<int>(ptx::cluster_rank()), lane}.run();
    } else if (reporting<Config>(p)) {
      Reporter<Config>{shared, p, warp - 1, lane}.run();
    }
  } else {
    ptx::raise_registers<Config::kConsumerRegisters>();
    Consumer<Config>(shared, p, static_cast<int>(threadIdx.x) - 128).run();
  }
  ptx::cluster_sync();  // a block's shared memory must outlive what its peer sends there
}

}  // namespace longhaul::sm90
