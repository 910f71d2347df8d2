// Where a request's groups and blocks lie in the skip mask [voting_heads, groups, blocks].
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/params.h"
#include "attention/tile_plan.h"

namespace longhaul {

/// Group of an absolute query position, which is negative where there are more queries than keys.
inline int64_t group_of(int64_t position, int64_t group_rows) { return floor_div(position, group_rows); }

/// Absolute position of a request's first query; negative where there are more queries than keys.
inline int64_t first_position(const AttentionParams& p, int b) { return p.kv_length(b) - p.q_length(b); }

/// Groups of one request: its query positions in runs of group_rows; group_rows 0 (decode): always one.
inline int64_t request_groups(const AttentionParams& p, int b, int group_rows) {
  if (group_rows == 0) return 1;
  if (p.q_length(b) == 0) return 0;
  return group_of(p.kv_length(b) - 1, group_rows) - group_of(first_position(p, b), group_rows) + 1;
}

/// Blocks are counted for the longest request; the rows of the others end earlier.
inline SkipMaskShape mask_shape(const AttentionParams& p, Phase phase, const Geometry& geometry) {
  SkipMaskShape shape{phase == Phase::decode ? p.heads_kv : p.heads_q, 0, 0};
  for (int b = 0; b < p.batch; ++b) {
    shape.groups += request_groups(p, b, geometry.group_rows);
    shape.blocks = std::max(shape.blocks, (p.kv_length(b) + geometry.block_keys - 1) / geometry.block_keys);
  }
  return shape;
}

}  // namespace longhaul
