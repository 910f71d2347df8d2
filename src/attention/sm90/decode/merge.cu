#include "attention/sm90/decode/merge.cuh"

#include <algorithm>

#include "attention/sm90/decode/launch.cuh"
#include "attention/sm90/decode/results.cuh"
#include "ptx/grid.h"

namespace longhaul::sm90 {
namespace {

/// Warps of a block, and parts whose loads a warp has under way at a time: the latency of the loads is all there is.
/// What registers beside the decode kernel's allow: many heads, a block each; few, four blocks each.
struct ManyHeads {
  static constexpr int kWarps = 16, kLoads = 8, kBlocksPerHead = 1;
  static constexpr bool kByIndex = false;
};
struct FewHeads {
  static constexpr int kWarps = 4, kLoads = 32, kBlocksPerHead = 4;
  static constexpr bool kByIndex = true;
};

/// A head with parts, and their slots, newest first: `first`, then `second` and every `step`th one. No parts: the head
/// has none, or another block sees to it.
struct SharedHead {
  DecodeShape shape;
  int head = 0, parts = 0;
  int64_t first = 0, second = 0;
  int step = 1;
  __device__ int64_t slot(int part) const { return part == 0 ? first : second + (part - 1) * step; }
};

/// Of a head that begins at unit `first` of all.
__device__ SharedHead shared_head(const Batch& batch, const DecodeShape& shape, int head, int64_t first, int units) {
  const DecodeKernelParams& p = batch.p;
  if (units <= 1) return {};
  if (p.batch_invariant) return {shape, head, units, first, first + 1, 1};
  const int blocks = decode_blocks(batch.units, p.multiprocessors, false);
  const int block = decode_block_of(batch.units, blocks, first);
  const int last = decode_block_of(batch.units, blocks, first + units - 1);
  if (last == block) return {};
  // The head may begin within a block's run: then its part there is not that block's first segment.
  const int place = decode_first_unit(batch.units, blocks, block) == first ? 0 : 1;
  return {shape, head, last - block + 1, int64_t{2} * block + place, int64_t{2} * (block + 1), 2};
}

/// Head number `index` of all.
__device__ SharedHead head_of_index(const Batch& batch, int index) {
  const DecodeKernelParams& p = batch.p;
  const int request = index / p.heads_kv, head = index % p.heads_kv;
  const DecodeShape shape = decode_shape(p, request);
  const int units = units_of(p, shape);
  return shared_head(batch, shape, head, batch.units_before(request) + int64_t{head} * units, units);
}

/// The head that is cut where the run of decode block `index` + 1 begins, if that is its first cut: as many candidates
/// as multiprocessors, however many heads there are.
__device__ SharedHead head_cut_before(const Batch& batch, int index) {
  const DecodeKernelParams& p = batch.p;
  const int blocks = decode_blocks(batch.units, p.multiprocessors, false), block = index + 1;
  if (block >= blocks) return {};
  const int64_t cut = decode_first_unit(batch.units, blocks, block);
  const Place at = batch.find(cut);
  const DecodeShape shape = decode_shape(p, at.request);
  const int units = units_of(p, shape), head = static_cast<int>(quotient(cut - at.first_unit, units));
  const int64_t first = at.first_unit + int64_t{head} * units;
  if (first == cut || decode_first_unit(batch.units, blocks, block - 1) > first) return {};
  return shared_head(batch, shape, head, first, units);
}

template <class Element, int kLoads>
__device__ void merge_row(const DecodeKernelParams& p, const SharedHead& head, const DecodeRow& row, int index,
                          int head_size, int lane) {
  JoinedRow joined;
  for (int i = lane; i < head.parts; i += 32)
    joined.base = ptx::max_or_nan(joined.base, p.part_sums[head.slot(i) * p.part_rows + index].x);
  for (int lanes = 16; lanes > 0; lanes /= 2)
    joined.base = ptx::max_or_nan(joined.base, __shfl_xor_sync(0xffffffff, joined.base, lanes));
#pragma unroll 1
  for (int begin = 0; begin < head.parts; begin += kLoads) {
    float4 values[kLoads];
    const int mine = begin + lane;  // lane i has the sums of part i of these
    float2 sums{-INFINITY, 0};
    if (lane < kLoads && mine < head.parts) sums = p.part_sums[head.slot(mine) * p.part_rows + index];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      values[i] = {};
      const int64_t at = head.slot(begin + i) * p.part_rows + index;
      if (begin + i < head.parts && 4 * lane < head_size)
        values[i] = *reinterpret_cast<const float4*>(p.part_out + at * head_size + 4 * lane);
    }
    const float factor = part_factor(p, sums.x, joined.base);
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      joined.add(__shfl_sync(0xffffffff, factor, i), __shfl_sync(0xffffffff, sums.y, i), values[i]);
  }
  write_row<Element>(p, row, joined, 4 * lane, head_size);
}

/// A warp a row. Without shared memory and with few registers, so that its blocks fit beside those of the decode
/// kernel: they start early, find their head, and wait for its parts (10 us a call where they started afterwards).
template <class Element, class Heads>
__global__ void __launch_bounds__(32 * Heads::kWarps)
    merge_kernel(const __grid_constant__ DecodeKernelParams p, int head_size) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // The lengths are there: the decode kernel let this one start after it had waited for them itself.
  const Batch batch(p, lane);
  SharedHead head;
  if (batch.wrong == 0 && batch.units > 0) {
    const auto index = static_cast<int>(blockIdx.x);
    head = Heads::kByIndex || p.batch_invariant ? head_of_index(batch, index) : head_cut_before(batch, index);
  }
  ptx::let_later_grids_start();
  // Who has nothing to do makes room at once, but one waits: this grid must not end before the decode kernel's.
  if (head.parts == 0 && blockIdx.x + blockIdx.y > 0) return;
  ptx::wait_for_earlier_grids();
  if (head.parts == 0) return;
  Segment s;
  s.shape = head.shape;
  s.head = head.head;
  s.rows = s.shape.q_length * p.group;
  constexpr int kRound = Heads::kWarps * Heads::kBlocksPerHead;
  for (int row = static_cast<int>(blockIdx.y) * Heads::kWarps + warp; row < s.rows; row += kRound)
    merge_row<Element, Heads::kLoads>(p, head, decode_row(p, s, row), row, head_size, lane);
}

template <class Heads>
cudaError_t launch(const DecodeKernelParams& p, DType dtype, int candidates, int head_size, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(candidates), Heads::kBlocksPerHead);
  auto* kernel = dtype == DType::bf16 ? merge_kernel<__nv_bfloat16, Heads> : merge_kernel<__half, Heads>;
  return launch_early(kernel, grid, 32 * Heads::kWarps, 0, stream, p, head_size);
}

}  // namespace

cudaError_t launch_decode_merge(const DecodeKernelParams& p, DType dtype, int head_size, cudaStream_t stream) {
  const int heads = p.batch * p.heads_kv;
  if (FewHeads::kBlocksPerHead * heads <= p.multiprocessors)
    return launch<FewHeads>(p, dtype, heads, head_size, stream);
  return launch<ManyHeads>(p, dtype, p.batch_invariant ? heads : std::max(1, p.multiprocessors - 1), head_size, stream);
}

}  // namespace longhaul::sm90
