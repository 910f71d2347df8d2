// Counters and the skip mask, written by warps that have nothing else to do: one for each warpgroup that computes,
// which hands over a byte a tile. In the warpgroup itself the code took registers that scores and output need.
#pragma once

#include "attention/sm90/prefill/rows.cuh"
#include "attention/sm90/prefill/work.cuh"
#include "attention/sm90/status.h"

namespace longhaul::sm90 {

template <class Config>
__device__ __forceinline__ bool reporting(const PrefillKernelParams& p) {
  return Config::kSkip && (p.counters != nullptr || p.skip_mask != nullptr);
}

template <class Config>
struct Reporter {
  static constexpr int kKeysOfBlock = Config::kBlockKeys, kKeysOfTile = Config::kTileKeys;

  typename Config::Shared& shared;
  const PrefillKernelParams& p;
  const int group, lane;
  uint32_t items = 0, tiles = 0;

  __device__ void wait(ptx::Mbarrier& barrier, uint32_t parity) {
    ptx::mbarrier_wait(&barrier, parity);
    __syncwarp();
  }

  /// Scores that the group's rows see of a tile, and those of them in dropped blocks; two rows a lane.
  __device__ void count_masked(const WorkItem& w, int first_key, uint32_t keep, uint64_t& visible, uint64_t& skipped) {
    uint32_t seen = 0, dropped = 0;
    for (int half = 0; half < 2; ++half) {
      const int position = w.position + group * Config::kGroupRows + half * 32 + lane;
      if (position < w.first_position || position >= w.kv_length) continue;
      const int begin = oldest_key(p, position), end = end_key(p, w, position);
      seen += max(min(end, first_key + kKeysOfTile) - max(begin, first_key), 0);
#pragma unroll 1
      for (int b = 0; b < Config::kBlocks; ++b) {
        const int key = first_key + b * kKeysOfBlock;
        if (!(keep >> b & 1)) dropped += max(min(end, key + kKeysOfBlock) - max(begin, key), 0);
      }
    }
    visible += __reduce_add_sync(0xffffffff, seen);
    skipped += __reduce_add_sync(0xffffffff, dropped);
  }

  /// Writes one block of the skip mask: 1 computed, 2 skipped; what no row of the group sees stays 0.
  __device__ void mark_block(const WorkItem& w, int first_key, bool kept) {
    const int first = w.position + group * Config::kGroupRows;
    const int row_begin = max(first, w.first_position), row_end = min(first + Config::kGroupRows, w.kv_length);
    if (row_begin >= row_end) return;
    if (first_key >= end_key(p, w, row_end - 1) || first_key + kKeysOfBlock <= oldest_key(p, row_begin)) return;
    const int64_t index = p.group_base[w.request] + group_of(first) - group_of(w.first_position);
    const int64_t block = first_key / kKeysOfBlock;
    if (index >= p.mask_groups || block >= p.mask_blocks) return set_status(p, kSm90MaskTooSmall);
    p.skip_mask[(w.head * p.mask_groups + index) * p.mask_blocks + block] = kept ? 1 : 2;
  }

  __device__ void report_item(const WorkItem& w) {
    const GroupTiles range = group_tiles(p, w, group);
    const FullView view = full_view(p, w, group);
    uint64_t visible = 0, skipped = 0;
    for (int i = 0; i < w.tiles; ++i, ++tiles) {
      const uint32_t slot = tiles % Config::kReports;
      wait(shared.report_full[group][slot], tiles / Config::kReports & 1);
      uint32_t keep = 0;
      if (lane == 0) {  // reads for all, so that its arrival orders every read before the next write
        keep = *static_cast<volatile uint8_t*>(&shared.reports[group][slot]);
        ptx::mbarrier_arrive(&shared.report_empty[group][slot]);
      }
      keep = __shfl_sync(0xffffffff, keep, 0);
      if (i < range.newer || i >= range.newer + range.count) continue;
      const int first_key = (w.newest_tile - i) * kKeysOfTile;
      if (p.skip_mask != nullptr && lane < Config::kBlocks)
        mark_block(w, first_key + lane * kKeysOfBlock, keep >> lane & 1);
      if (p.counters == nullptr) continue;
      if (view.whole(first_key, kKeysOfTile)) {
        visible += Config::kGroupRows * kKeysOfTile;
        skipped += (Config::kBlocks - __popc(keep)) * Config::kGroupRows * kKeysOfBlock;
      } else {
        count_masked(w, first_key, keep, visible, skipped);
      }
    }
    if (p.counters == nullptr || lane != 0) return;
    auto* counters = reinterpret_cast<unsigned long long*>(p.counters + w.head * p.counters_head);
    if (visible > 0) atomicAdd(counters, visible);
    if (skipped > 0) atomicAdd(counters + p.counters_kind, skipped);
  }

  __device__ void run() {
    while (true) {
      const uint32_t slot = items % 2;
      wait(shared.item_full[slot], items / 2 & 1);
      const WorkItem w = shared.items[slot];
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.item_empty[slot]);
      if (w.head < 0) break;
      report_item(w);
      ++items;
    }
  }
};

}  // namespace longhaul::sm90
