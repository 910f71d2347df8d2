// The decode kernel: a block to a multiprocessor, each with an equal run of tiles (plan.h).
#pragma once

#include "attention/sm90/decode/results.cuh"
#include "attention/sm90/decode/warp.cuh"
#include "ptx/grid.h"

namespace longhaul::sm90 {

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1) decode_kernel(const __grid_constant__ DecodeKernelParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(raw);
  if (threadIdx.x == 0 && ptx::shared_address(raw) % 1024 != 0) __trap();  // the swizzle pattern counts on it
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    ptx::prefetch_map(&p.k);
    ptx::prefetch_map(&p.v);
  }
  ptx::wait_for_earlier_grids();
  ptx::let_later_grids_start();  // only now: the merge kernel reads lengths at once
  const Batch batch(p, lane);
  if (batch.wrong != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      if (batch.wrong & kSm90LengthsMalformed) set_status(p, kSm90LengthsMalformed);
      if (batch.wrong & kSm90TooManyRows) set_status(p, kSm90TooManyRows);
    }
    return;
  }
  const int blocks = decode_blocks(batch.units, p.multiprocessors, p.batch_invariant);
  const auto block = static_cast<int>(blockIdx.x);
  if (block >= blocks) return;
  SegmentWalk walk(p, batch, blocks, block);
  DecodeWarp<Config> worker(shared, p, warp, lane);
  Segment segment;
  while (walk.next(segment)) {
    worker.start(segment, walk);
    worker.compute(segment);
    write_segment<Config>(shared, p, segment, worker.role, warp, lane, worker.o, worker.row);
  }
}

}  // namespace longhaul::sm90
