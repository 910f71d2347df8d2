// From an item of the work list to the rows and key tiles it stands for.
#pragma once

#include "attention/sm90/prefill/config.h"
#include "attention/sm90/prefill/kernel_params.h"

namespace longhaul::sm90 {

/// Tile of an absolute query position, which may be negative.
__host__ __device__ inline int row_tile(int position) {
  return position >= 0 ? position / kSm90TileRows : -((kSm90TileRows - 1 - position) / kSm90TileRows);
}

/// Voting group of an absolute query position, which may be negative.
__host__ __device__ inline int group_of(int position) {
  constexpr int kLog2Rows = 6;  // a shift rounds negative positions down, too
  static_assert(kSm90GroupRows == 1 << kLog2Rows);
  return position >> kLog2Rows;
}

struct RequestShape {
  int q_begin, q_length, kv_begin, kv_length;
  __host__ __device__ int first_position() const { return kv_length - q_length; }
  __host__ __device__ int first_tile() const { return row_tile(first_position()); }
  /// Voting groups of 64 positions.
  __host__ __device__ int groups() const {
    return q_length == 0 ? 0 : group_of(kv_length - 1) - group_of(first_position()) + 1;
  }
  __host__ __device__ int tiles() const { return q_length == 0 ? 0 : row_tile(kv_length - 1) - first_tile() + 1; }
};

__device__ inline RequestShape request_shape(const PrefillKernelParams& p, int b) {
  const int q_begin = p.cu_q[b], q_length = p.cu_q[b + 1] - q_begin;
  if (p.page_size > 0) return {q_begin, q_length, 0, p.kv_lengths[b]};
  const int kv_begin = p.cu_kv[b];
  return {q_begin, q_length, kv_begin, p.cu_kv[b + 1] - kv_begin};
}

/// Heads of keys and values that are worked on together: as many as keep 24 MB of them in a 50 MB L2.
__host__ __device__ inline int heads_per_section(int kv_length, int heads_kv, int head_size) {
  const int64_t bytes = int64_t{4} * head_size * (kv_length > 0 ? kv_length : 1);
  const int64_t heads = (int64_t{24} << 20) / bytes;
  return heads < 1 ? 1 : heads > heads_kv ? heads_kv : static_cast<int>(heads);
}

/// Item `index` of a request: sections of KV heads, in each the query tiles from the last (which sees most keys), in
/// each the query heads, p.ranks at a time: one for each block of a cluster.
__device__ inline void item_of_request(int index, int rank, const RequestShape& shape, const PrefillKernelParams& p,
                                       int head_size, int& head, int& tile) {
  const int tiles = shape.tiles();
  const int section_heads = heads_per_section(shape.kv_length, p.heads_kv, head_size) * p.group;
  const int section_items = tiles * (section_heads / p.ranks);
  const int section = index / section_items;
  index -= section * section_items;
  const int first_head = section * section_heads;
  const int heads = min(section_heads, p.heads_q - first_head) / p.ranks;
  tile = shape.first_tile() + tiles - 1 - index / heads;
  head = first_head + index % heads * p.ranks + rank;
}

/// The request whose items hold `item`: the last one that begins at or before it and is not empty.
__device__ inline RequestPlan find_request(const PrefillKernelParams& p, int item) {
  int low = 0, high = p.batch;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (p.plan[middle].first_item <= item) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return p.plan[low];
}

__device__ inline WorkItem make_item(const PrefillKernelParams& p, int item, int rank, int head_size) {
  const RequestPlan plan = find_request(p, item);
  const RequestShape shape = request_shape(p, plan.request);
  WorkItem w;
  int tile;
  item_of_request(item - plan.first_item, rank, shape, p, head_size, w.head, tile);
  w.request = plan.request;
  w.position = tile * kSm90TileRows;
  w.first_position = shape.first_position();
  w.kv_length = shape.kv_length;
  w.q_token = shape.q_begin - w.first_position;
  w.kv_token = shape.kv_begin;
  const int newest_key = p.causal ? min(w.position + kSm90TileRows, shape.kv_length) - 1 : shape.kv_length - 1;
  const int64_t oldest_key = p.window_left < 0 ? 0 : max(w.position, w.first_position) - p.window_left;
  w.newest_tile = newest_key / kSm90TileKeys;
  w.tiles =
      newest_key < 0 ? 0 : w.newest_tile - (oldest_key > 0 ? static_cast<int>(oldest_key / kSm90TileKeys) : 0) + 1;
  return w;
}

}  // namespace longhaul::sm90
