// Prefill on Hopper: the host's side.
#pragma once

#include <cstddef>

#include "attention/params.h"
#include "attention/sm90/prefill/tile.h"

namespace longhaul {

/// The unit of skipping: a warpgroup's 64 rows vote on 16 keys, one k-step of wgmma.
inline constexpr Geometry kSm90Prefill{
    .tile_keys = sm90::kSm90TileKeys, .block_keys = 16, .group_rows = sm90::kSm90GroupRows};

/// Device memory for the work list.
size_t sm90_prefill_workspace_bytes(const AttentionParams& p);

/// Enqueues the call on p.stream; may be captured in a CUDA graph. Throws Unsupported where no kernel is
/// built for the call, System where a CUDA call fails.
void sm90_prefill(const AttentionParams& p);

}  // namespace longhaul
