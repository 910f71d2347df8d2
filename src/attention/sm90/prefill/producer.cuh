// The warp that draws work and keeps the copies of queries, keys and values in flight.
#pragma once

#include "attention/sm90/prefill/config.h"
#include "attention/sm90/prefill/kernel_params.h"
#include "attention/sm90/prefill/uniform.cuh"
#include "attention/sm90/prefill/work.cuh"
#include "ptx/cluster.h"
#include "ptx/tensor_copy.h"

namespace longhaul::sm90 {

/// Boxes of a tile that hold a key of the request; others are not copied, so that a page table's unused entries are
/// never read.
template <class Config>
__device__ __forceinline__ int boxes_of(const PrefillKernelParams& p, const WorkItem& w, int tile) {
  return (min(Config::kTileKeys, w.kv_length - tile * Config::kTileKeys) + (1 << p.box_shift) - 1) >> p.box_shift;
}

/// Where a box of keys and values begins: ragged, a token of the tensor; paged, a token of a page.
struct BoxPlace {
  int token, page;
};

/// Where box `lane` of a tile lies.
template <class Config>
__device__ __forceinline__ BoxPlace find_box(const PrefillKernelParams& p, const WorkItem& w, int tile, int lane) {
  const int first_key = tile * Config::kTileKeys + (lane << p.box_shift);
  if (p.page_size == 0) return {w.kv_token + first_key, 0};
  if (lane >= boxes_of<Config>(p, w, tile)) return {0, 0};
  return {first_key % p.page_size, p.page_table[w.request * p.page_table_request + first_key / p.page_size]};
}

/// Copies one tile of keys or values, box by box, to all blocks of the cluster, which share the boxes. `place`: where
/// the lane's box lies.
template <class Config>
__device__ __forceinline__ void load_tile(const PrefillKernelParams& p, const CUtensorMap& map, const WorkItem& w,
                                          int head, int tile, BoxPlace place, uint8_t* destination, ptx::Mbarrier* full,
                                          int rank, int lane) {
  const int boxes = boxes_of<Config>(p, w, tile);
  if (lane == 0) ptx::mbarrier_arrive_expect(full, (boxes << p.box_shift) * 128 * Config::kPanels);
  __syncwarp();
  const bool elected = ptx::elect_lane();
#pragma unroll 1
  for (int i = rank; i < boxes * Config::kPanels; i += p.ranks) {
    const int box = i / Config::kPanels, panel = i % Config::kPanels;
    const int token = uniform(__shfl_sync(0xffffffff, place.token, box));
    const int page = uniform(__shfl_sync(0xffffffff, place.page, box));
    uint8_t* to = destination + panel * Config::kKeyPanelBytes + (box << p.box_shift) * 128;
    if (!elected) continue;
    if (p.ranks == 1) {
      ptx::load_box(&map, to, full, panel * 64, token, head, page, ptx::CachePolicy::last);
    } else {
      ptx::load_box_to_cluster(&map, to, full, panel * 64, token, head, page, static_cast<uint16_t>((1 << p.ranks) - 1),
                               ptx::CachePolicy::last);
    }
  }
}

template <class Config>
struct Producer {
  typename Config::Shared& shared;
  const PrefillKernelParams& p;
  int rank, lane;
  uint32_t queries = 0, items = 0, draws = 0;  // begun so far
  RingPlace<Config::kStages> place{};

  int head = 0;  // of keys and values

  __device__ void load(const CUtensorMap& map, const WorkItem& w, int tile, BoxPlace place_of_box) {
    ptx::mbarrier_wait(&shared.tile_empty[place.stage], place.parity ^ 1);
    load_tile<Config>(p, map, w, head, tile, place_of_box, shared.tiles[place.stage], &shared.tile_full[place.stage],
                      rank, lane);
    place.advance();
  }

  __device__ void load_query(const WorkItem& w) {
    ptx::mbarrier_wait(&shared.query_empty, (queries & 1) ^ 1);
    if (ptx::elect_lane()) {
      ptx::mbarrier_arrive_expect(&shared.query_full, Config::kQueryBytes);
      for (int panel = 0; panel < Config::kPanels; ++panel)
        ptx::load_box(&p.q, shared.query + panel * Config::kQueryPanelBytes, &shared.query_full, panel * 64,
                      w.q_token + w.position, w.head, 0, ptx::CachePolicy::first);
    }
    ++queries;
  }

  /// Hands the item to the consumers.
  __device__ void publish(const WorkItem& w) {
    const uint32_t slot = items % 2;
    ptx::mbarrier_wait(&shared.item_empty[slot], (items / 2 & 1) ^ 1);
    if (lane == 0) {
      shared.items[slot] = w;
      ptx::mbarrier_arrive(&shared.item_full[slot]);
    }
    ++items;
  }

  static __device__ WorkItem uniform_item(const WorkItem& w) {
    return {uniform(w.head),           uniform(w.request),     uniform(w.position),
            uniform(w.first_position), uniform(w.kv_length),   uniform(w.q_token),
            uniform(w.kv_token),       uniform(w.newest_tile), uniform(w.tiles)};
  }

  __device__ int draw_number() {
    int item = 0;
    if (lane == 0) item = atomicAdd(&p.header->next_item, 1);
    return __shfl_sync(0xffffffff, item, 0);
  }

  /// The cluster's next item. Its first block draws, and tells the others.
  __device__ WorkItem draw() {
    if (p.ranks == 1) return item_at(draw_number());
    const uint32_t slot = draws % 2, parity = draws / 2 & 1;
    ++draws;
    if (rank == 0) {
      ptx::mbarrier_wait_in_cluster(&shared.draw_empty[slot], parity ^ 1);
      const int item = draw_number();
      if (lane < p.ranks) ptx::send(&shared.draws[slot], &shared.draw_full[slot], lane, item);
    }
    if (lane == 0) ptx::mbarrier_arrive_expect(&shared.draw_full[slot], sizeof(int));
    ptx::mbarrier_wait(&shared.draw_full[slot], parity);
    const int item = *static_cast<volatile int*>(&shared.draws[slot]);
    __syncwarp();
    if (lane == 0) ptx::mbarrier_release_at(&shared.draw_empty[slot], 0);
    return item_at(item);
  }

  __device__ WorkItem item_at(int item) {
    if (item < p.header->total_items) return uniform_item(make_item(p, item, rank, Config::kHeadSize));
    return {.head = -1};
  }

  __device__ void run() {
    for (WorkItem w = item_at(static_cast<int>(blockIdx.x) / p.ranks); w.head >= 0;) {
      publish(w);
      const WorkItem next = draw();  // early, so that the counter's latency hides behind the copies
      head = w.head / p.group;
      load_query(w);
      BoxPlace next_place{};
      if (w.tiles > 0) next_place = find_box<Config>(p, w, w.newest_tile, lane);
      for (int i = 0; i < w.tiles; ++i) {
        const int tile = w.newest_tile - i;
        const BoxPlace place_of_box = next_place;
        // A tile ahead: reading the page table and dividing by the page size take longer than the ring has time for
        // (0.83 of the speed without pages where each copy divided by itself).
        if (i + 1 < w.tiles) next_place = find_box<Config>(p, w, tile - 1, lane);
        load(p.k, w, tile, place_of_box);
        load(p.v, w, tile, place_of_box);
      }
      w = next;
    }
    publish(WorkItem{.head = -1});
  }
};

}  // namespace longhaul::sm90
