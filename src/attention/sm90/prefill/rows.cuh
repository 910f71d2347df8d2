// The rows a consumer thread holds and what they see: of a warpgroup's 64 rows 16 * warp + lane / 4 and 8 more.
#pragma once

#include <cmath>

#include "attention/sm90/prefill/config.h"
#include "attention/sm90/prefill/kernel_params.h"
#include "attention/sm90/scores.cuh"

namespace longhaul::sm90 {

__device__ __forceinline__ int oldest_key(const PrefillKernelParams& p, int position) {
  return p.window_left < 0 || position <= p.window_left ? 0 : position - static_cast<int>(p.window_left);
}
__device__ __forceinline__ int end_key(const PrefillKernelParams& p, const WorkItem& w, int position) {
  return p.causal ? min(position + 1, w.kv_length) : w.kv_length;
}

/// Keys [begin, end) that all 64 rows of a warpgroup see; empty where a row lies outside the request.
struct FullView {
  int begin = 0, end = 0;

  __device__ __forceinline__ bool whole(int first_key, int keys) const {
    return first_key >= begin && first_key + keys <= end;
  }
};

__device__ inline FullView full_view(const PrefillKernelParams& p, const WorkItem& w, int group) {
  const int first = w.position + group * kSm90GroupRows;
  if (first < w.first_position || first + kSm90GroupRows > w.kv_length) return {};
  return {oldest_key(p, first + kSm90GroupRows - 1), end_key(p, w, first)};
}

/// The key tiles that a warpgroup's rows see, of those of its item.
struct GroupTiles {
  int newer = 0;  ///< tiles of the item before the first of these
  int count = 0;
  int first_key = 0;  ///< of the first one
  int kv_length = 0;
  int begin = 0, end = 0;  ///< keys that any of the rows sees
};

__device__ inline GroupTiles group_tiles(const PrefillKernelParams& p, const WorkItem& w, int group) {
  const int first = max(w.position + group * kSm90GroupRows, w.first_position);
  const int last = min(w.position + (group + 1) * kSm90GroupRows - 1, w.kv_length - 1);
  if (first > last) return {};
  const int begin = oldest_key(p, first), end = end_key(p, w, last);
  if (begin >= end) return {};
  const int newest = (end - 1) / kSm90TileKeys;
  return {w.newest_tile - newest, newest - begin / kSm90TileKeys + 1, newest * kSm90TileKeys, w.kv_length, begin, end};
}

/// Keys [begin, begin + count) that the thread's two rows see; count 0: the row lies outside the request or sees none.
struct RowView {
  int begin[2], count[2];

  __device__ RowView(const PrefillKernelParams& p, const WorkItem& w, int first_position) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int position = first_position + 8 * r;
      const bool inside = position >= w.first_position && position < w.kv_length;
      begin[r] = oldest_key(p, position);
      count[r] = inside ? max(end_key(p, w, position) - begin[r], 0) : 0;
    }
  }
};

/// Hides what a row does not see. Returns the blocks (bits) that hold a visible score of -inf: they must be kept.
template <int n>
__device__ __forceinline__ uint32_t mask_scores(float (&s)[n], const RowView& visible, int first_key, int pair) {
  uint32_t keep = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int begin = visible.begin[r] - first_key - pair;
#pragma unroll
    for (int j = 0; j < n / 4; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = s[4 * j + 2 * r + c];
        const bool seen = static_cast<unsigned>(8 * j + c - begin) < static_cast<unsigned>(visible.count[r]);
        if (seen && score == -INFINITY) keep |= 1U << (j / 2);
        score = seen ? score : -INFINITY;
      }
    }
  }
  return keep;
}

}  // namespace longhaul::sm90
