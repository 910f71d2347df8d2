// Counters and the skip mask. One thread a warpgroup counts tiles without a mask in shared memory; tiles with a mask, a
// few an item, go to global memory at once.
#pragma once

#include "attention/sm90/prefill/rows.cuh"
#include "attention/sm90/status.h"

namespace longhaul::sm90 {

__device__ inline void add_to_counters(const PrefillKernelParams& p, int head, uint64_t visible, uint64_t skipped) {
  auto* counters = reinterpret_cast<unsigned long long*>(p.counters + head * p.counters_head);
  if (visible > 0) atomicAdd(counters, visible);
  if (skipped > 0) atomicAdd(counters + p.counters_kind, skipped);
}

/// Scores that a warp's 16 rows see of a tile, and those of them in dropped blocks.
__device__ inline void count_masked(const PrefillKernelParams& p, const WorkItem& w, int first_row, int lane,
                                    int first_key, uint32_t keep) {
  const RowView view(p, w, first_row);
  uint32_t visible = 0, skipped = 0;
  for (int r = 0; r < 2 && lane % 4 == 0; ++r) {
    visible += view.count_in(r, first_key, kSm90TileKeys);
    for (int b = 0; b < kSm90TileKeys / 16; ++b)
      if (!(keep >> b & 1)) skipped += view.count_in(r, first_key + b * 16, 16);
  }
  visible = __reduce_add_sync(0xffffffff, visible);
  skipped = __reduce_add_sync(0xffffffff, skipped);
  if (lane == 0) add_to_counters(p, w.head, visible, skipped);
}

/// Writes one block of the skip mask: 1 computed, 2 skipped; what no row of the group sees stays 0.
__device__ inline void mark_block(const PrefillKernelParams& p, const WorkItem& w, int group, int first_key,
                                  bool kept) {
  const int first = w.position + group * 64;
  const int row_begin = max(first, w.first_position), row_end = min(first + 64, w.kv_length);
  if (row_begin >= row_end) return;
  if (first_key >= end_key(p, w, row_end - 1) || first_key + 16 <= oldest_key(p, row_begin)) return;
  const int64_t index = p.group_base[w.request] + (first >> 6) - (w.first_position >> 6);
  const int64_t block = first_key / 16;
  if (index >= p.mask_groups || block >= p.mask_blocks) {
    set_status(p, kSm90MaskTooSmall);
    return;
  }
  p.skip_mask[(w.head * p.mask_groups + index) * p.mask_blocks + block] = kept ? 1 : 2;
}

__device__ __forceinline__ void report_tile(uint32_t& visible_tiles, uint32_t& skipped_blocks,
                                            const PrefillKernelParams& p, const WorkItem& w, int group, int thread,
                                            int first_key, bool masked, uint32_t keep) {
  constexpr int kBlocks = kSm90TileKeys / 16;
  if (p.counters != nullptr) {
    if (masked) {
      const int row = w.position + group * 64 + thread / 32 * 16 + thread % 32 / 4;
      count_masked(p, w, row, thread % 32, first_key, keep);
    } else if (thread == 0) {
      visible_tiles += 1;
      skipped_blocks += kBlocks - __popc(keep);
    }
  }
  if (p.skip_mask != nullptr && thread < kBlocks) mark_block(p, w, group, first_key + thread * 16, keep >> thread & 1);
}

__device__ inline void report_item(uint32_t& visible_tiles, uint32_t& skipped_blocks, const PrefillKernelParams& p,
                                   const WorkItem& w, int thread) {
  if (thread != 0) return;
  add_to_counters(p, w.head, uint64_t{visible_tiles} * kSm90TileKeys * 64, uint64_t{skipped_blocks} * 16 * 64);
  visible_tiles = skipped_blocks = 0;
}

}  // namespace longhaul::sm90
