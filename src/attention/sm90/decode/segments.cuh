// The lengths of a batch as a warp reads them, and the segments of a block's run: what of one head it has.
#pragma once

#include "attention/sm90/decode/kernel_params.h"
#include "attention/sm90/decode/plan.h"

namespace longhaul::sm90 {

struct DecodeShape {
  int q_begin, q_length, kv_begin, kv_length;
  __device__ int first_position() const { return kv_length - q_length; }
};

__device__ inline DecodeShape decode_shape(const DecodeKernelParams& p, int b) {
  const int q_begin = p.cu_q[b], q_length = p.cu_q[b + 1] - q_begin;
  if (p.page_size > 0) return {q_begin, q_length, 0, p.kv_lengths[b]};
  const int kv_begin = p.cu_kv[b];
  return {q_begin, q_length, kv_begin, p.cu_kv[b + 1] - kv_begin};
}

/// Whether the lengths of a request lie within the tensors; 0 or what is wrong.
__device__ inline uint32_t wrong_with(const DecodeKernelParams& p, int b) {
  const int64_t q_begin = p.cu_q[b], q_end = p.cu_q[b + 1];
  bool fit = q_begin >= 0 && q_begin <= q_end && q_end <= p.total_q;
  if (b == 0) fit = fit && q_begin == 0;
  if (b == p.batch - 1) fit = fit && q_end == p.total_q;
  if (p.page_size > 0) {
    const int64_t length = p.kv_lengths[b];
    fit = fit && length >= 0 && length <= int64_t{p.page_size} * p.max_pages;
  } else {
    const int64_t begin = p.cu_kv[b], end = p.cu_kv[b + 1];
    fit = fit && begin >= 0 && begin <= end && end <= p.kv_rows;
    if (b == 0) fit = fit && begin == 0;
    if (b == p.batch - 1) fit = fit && end == p.kv_rows;
  }
  if (!fit) return kSm90LengthsMalformed;
  const int64_t tokens = q_end - q_begin;
  return tokens > kDecodeMaxTokens || tokens * p.group > kDecodeMaxRows ? kSm90TooManyRows : 0;
}

__device__ inline int units_of(const DecodeKernelParams& p, const DecodeShape& r) {
  return decode_units(r.q_length, decode_tiles(r.q_length, r.kv_length, p.window_left).count, p.batch_invariant);
}

/// Where a request's units begin in the row of all.
struct Place {
  int request;
  int64_t first_unit;
};

/// What the whole warp computes from all lengths, together.
struct Batch {
  const DecodeKernelParams& p;
  const int lane;
  int64_t units = 0;   // of all requests and heads
  uint32_t wrong = 0;  // kSm90... of any request
  int first = 0;       // units of a head of request `lane`

  __device__ Batch(const DecodeKernelParams& params, int lane_) : p(params), lane(lane_) {
    int64_t mine = 0;
    for (int b = lane; b < p.batch; b += 32) {
      const uint32_t what = wrong_with(p, b);
      wrong |= what;
      const int of_head = what == 0 ? units_of(p, decode_shape(p, b)) : 0;
      if (b == lane) first = of_head;
      mine += of_head;
    }
    wrong = __reduce_or_sync(0xffffffff, wrong);
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_xor_sync(0xffffffff, mine, lanes);
    units = mine * p.heads_kv;
  }

  /// Units of the requests before one.
  __device__ int64_t units_before(int request) const {
    int64_t mine = 0;
    for (int b = lane; b < request; b += 32) mine += units_of(p, decode_shape(p, b));
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_xor_sync(0xffffffff, mine, lanes);
    return mine * p.heads_kv;
  }

  /// The request whose units hold `unit`, which lies within all.
  __device__ Place find(int64_t unit) const {
    int64_t before = 0;
    for (int begin = 0;; begin += 32) {
      const int b = begin + lane;
      const int of_head = begin == 0 ? first : b < p.batch ? units_of(p, decode_shape(p, b)) : 0;
      const int64_t mine = int64_t{of_head} * p.heads_kv;
      int64_t up_to = mine;
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffff, up_to, lanes);
        if (lane >= lanes) up_to += other;
      }
      const uint32_t beyond = __ballot_sync(0xffffffff, before + up_to > unit);
      if (beyond != 0) {
        const int found = __ffs(static_cast<int>(beyond)) - 1;
        return {begin + found, before + __shfl_sync(0xffffffff, up_to - mine, found)};
      }
      before += __shfl_sync(0xffffffff, up_to, 31);
    }
  }
};

/// A run of tiles of one KV head of a request, newest first.
struct Segment {
  DecodeShape shape;
  int request, head;  // head of keys and values
  int rows;           // query tokens x query heads of the KV head
  int row_warps;      // warps that share the keys; the others have parts of their own
  int newest_tile;    // of the request
  int first, count;   // tiles, counted from the newest
  int64_t slot;       // for the result of a part; -1: this is all of the head
};

/// Which of a block's slots and tiles a warp has to do with, by how many warps share keys.
struct Role {
  int row_warps;  // warps that share keys
  int row_tile;   // which 16 rows are this warp's
  int part;       // which tiles
  int parts;
};
__device__ inline Role role_of(int row_warps, int warp) {
  return {row_warps, warp % row_warps, warp / row_warps, kDecodeWarps / row_warps};
}

/// The segments of a block, one after the other.
struct SegmentWalk {
  const DecodeKernelParams* p;
  int block;
  int64_t unit, begin, end;  // next unit; those of the block
  Place at;

  __device__ SegmentWalk() {}
  __device__ SegmentWalk(const DecodeKernelParams& params, const Batch& batch, int blocks, int block_)
      : p(&params), block(block_) {
    begin = unit = decode_first_unit(batch.units, blocks, block);
    end = decode_first_unit(batch.units, blocks, block + 1);
    at = unit < end ? batch.find(unit) : Place{};
  }

  __device__ bool next(Segment& s) {
    if (unit >= end) return false;
    s.shape = decode_shape(*p, at.request);
    int units = units_of(*p, s.shape);
    while (unit >= at.first_unit + int64_t{units} * p->heads_kv) {
      at.first_unit += int64_t{units} * p->heads_kv;
      s.shape = decode_shape(*p, ++at.request);
      units = units_of(*p, s.shape);
    }
    const auto local = static_cast<int>(unit - at.first_unit);
    s.request = at.request;
    s.head = local / units;
    s.rows = s.shape.q_length * p->group;
    s.row_warps = decode_row_warps(s.rows);
    const DecodeTiles tiles = decode_tiles(s.shape.q_length, s.shape.kv_length, p->window_left);
    s.newest_tile = tiles.newest;
    const int offset = local % units;
    const int run = p->batch_invariant ? 1 : static_cast<int>(min(int64_t{units - offset}, end - unit));
    if (p->batch_invariant) {
      s.first = offset * kDecodeInvariantTiles;
      s.count = min(kDecodeInvariantTiles, tiles.count - s.first);
      s.slot = unit;
    } else {
      s.first = offset;
      s.count = min(run, tiles.count);
      // Of a block's segments the first and the last may be parts of a head; others are all of one.
      s.slot = 2 * block + (unit == begin ? 0 : 1);
    }
    if (run == units) s.slot = -1;
    unit += run;
    return true;
  }
};

}  // namespace longhaul::sm90
