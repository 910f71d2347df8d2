// The copies of keys and values on their way to a warp (or to the warps that share them), tile by tile, as far ahead as
// the ring has room for, and on into the block's next segment.
#pragma once

#include "attention/sm90/decode/config.h"
#include "attention/sm90/decode/segments.cuh"
#include "attention/sm90/uniform.cuh"
#include "ptx/sync.h"
#include "ptx/tensor_copy.h"

namespace longhaul::sm90 {

/// The tiles of a segment that a part visits: its own, newest first; where they do not begin with the newest tile and
/// `seeded`, that one before them, for its maxima only.
struct Visits {
  int first_tile = 0, count = 0;  // own tiles: first_tile, first_tile - 1, ...
  int newest_tile = 0, seeds = 0;
  __device__ Visits() {}
  __device__ Visits(const Segment& s, const Role& role, bool seeded) {
    const Run run = run_of(s.count, role.parts, role.part);
    newest_tile = s.newest_tile;
    first_tile = s.newest_tile - s.first - run.first;
    count = run.count;
    seeds = seeded && count > 0 && first_tile != newest_tile ? 1 : 0;
  }
  __device__ int all() const { return seeds + count; }
  __device__ int tile(int visit) const { return visit < seeds ? newest_tile : first_tile - (visit - seeds); }
};

/// Where a box of keys and values begins: ragged, a token of the tensor; paged, a token of a page.
struct BoxStart {
  int token, page;
};

/// Where box `lane` of 2^shift keys of a tile lies. What lies past the request's end is not looked up.
__device__ __forceinline__ BoxStart find_box(const DecodeKernelParams& p, const Segment& s, int tile, int shift,
                                             int lane) {
  const int key = tile * kDecodeTileKeys + (lane << shift);
  if (p.page_size == 0) return {s.shape.kv_begin + key, 0};
  if (lane >= kDecodeTileKeys >> shift || key >= s.shape.kv_length) return {0, 0};
  const int page = quotient_by_page(key, p.page_reciprocal);
  return {key - page * p.page_size, p.page_table[s.request * p.page_table_request + page]};
}

/// Boxes of a tile that hold a key of the request.
__device__ __forceinline__ int boxes_of(const Segment& s, int tile, int shift) {
  const int keys = min(kDecodeTileKeys, s.shape.kv_length - tile * kDecodeTileKeys);
  return (keys + (1 << shift) - 1) >> shift;
}

/// Starts the copies of the boxes in `wanted` (bits) to their places in `slot`, by one lane; `full` counts the bytes.
template <class Config>
__device__ __forceinline__ void copy_boxes(const CUtensorMap& map, int head, BoxStart place, uint32_t wanted, int shift,
                                           uint8_t* slot, ptx::Mbarrier* full, int lane) {
  const uint32_t box_bytes = (Config::kHeadSize * 2) << shift;
  if (lane == 0) ptx::mbarrier_arrive_expect(full, __popc(wanted) * box_bytes);
  __syncwarp();
  const bool elected = ptx::elect_lane();
  if (1 << shift == Config::kTileKeys) {  // one box, which all lanes know
    const int token = uniform(place.token), page = uniform(place.page);
    if (elected) ptx::load_box(&map, slot, full, 0, token, 0, head, page, ptx::CachePolicy::first);
    return;
  }
#pragma unroll 1
  for (uint32_t left = wanted; left != 0; left &= left - 1) {
    const int box = __ffs(static_cast<int>(left)) - 1;
    const int token = uniform(__shfl_sync(0xffffffff, place.token, box));
    const int page = uniform(__shfl_sync(0xffffffff, place.page, box));
    if (elected) ptx::load_box(&map, slot + box * box_bytes, full, 0, token, 0, head, page, ptx::CachePolicy::first);
  }
}

/// The next copies to start. Dense: keys and values of each tile in turn, in one ring of all slots of the part.
/// Skipping: keys only, and the last slot is left to values, which are asked for once a tile is not dropped.
template <class Config>
struct Stream {
  typename Config::Shared& shared;
  const DecodeKernelParams& p;
  const int lane;
  SegmentWalk walk;
  Segment segment;
  Visits visits;
  Role role;
  int visit;
  bool values;                 // next: the values of the tile
  bool more;                   // segment holds what comes next
  int slot;                    // of the part's, next to be filled
  int first_slot, ring_slots;  // the part's first slot; how many its ring has
  BoxStart place;              // of the next tile's boxes
  BoxStart ahead;              // where a tile is one box: of visit window + lane
  int window;

  /// Fills the ring from segment `s` on, whose rows are shared out as `r` says.
  __device__ void start(const Segment& s, const SegmentWalk& after, const Role& r) {
    segment = s;
    walk = after;
    role = r;
    slot = visit = 0;
    values = false;
    more = true;
    enter();
    find();
    const int slots = Config::kSlots / role.parts;
    first_slot = role.part * slots;
    ring_slots = slots - (Config::kSkip ? 1 : 0);
    for (int i = 0; i < ring_slots; ++i) advance();
  }

  /// Starts one copy; the slot that comes next must be free. Nothing where there is nothing more, or rows are shared
  /// out differently from there on.
  __device__ void advance() {
    if (!more || visit >= visits.all()) return;
    const int tile = visits.tile(visit);
    const int shift = values ? p.v_box_shift : p.k_box_shift;
    const int at = uniform(first_slot + slot);
    copy_boxes<Config>(values ? p.v : p.k, uniform(segment.head), place, (1U << boxes_of(segment, tile, shift)) - 1,
                       shift, shared.tiles[at], &shared.full[at], lane);
    if (++slot == ring_slots) slot = 0;
    if (!Config::kSkip) values = !values;
    if (values) return;
    ++visit;
    find();
  }

 private:
  __device__ void enter() {
    visit = 0;
    window = -32;
    visits = Visits(segment, role, Config::kSkip);
  }

  /// Looks the next tile's boxes up, before their copies can start. Where a tile lies in one page, the page table is
  /// read for 32 tiles at a time.
  __device__ void find() {
    while (more && visit >= visits.all()) {
      more = walk.next(segment);
      if (!more || segment.row_warps != role.row_warps) {
        visits = Visits();
        return;
      }
      enter();
    }
    if (!more) return;
    if (1 << p.k_box_shift < Config::kTileKeys) {
      place = find_box(p, segment, visits.tile(visit), p.k_box_shift, lane);
      return;
    }
    if (visit >= window + 32) {
      window = visit;
      if (visit + lane < visits.all()) ahead = find_box(p, segment, visits.tile(visit + lane), p.k_box_shift, 0);
    }
    place = {__shfl_sync(0xffffffff, ahead.token, visit - window), __shfl_sync(0xffffffff, ahead.page, visit - window)};
  }
};

}  // namespace longhaul::sm90
