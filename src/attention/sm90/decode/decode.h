// Decode on Hopper: the host's side.
#pragma once

#include <cstddef>

#include "attention/params.h"
#include "attention/sm90/decode/plan.h"

namespace longhaul {

/// The unit of skipping: all query tokens and heads of a KV head vote on 16 keys, one k-step of mma.
inline constexpr Geometry kSm90Decode{
    .tile_keys = sm90::kDecodeTileKeys, .block_keys = sm90::kDecodeBlockKeys, .group_rows = 0};

/// Device memory for the parts of heads that several blocks share.
size_t sm90_decode_workspace_bytes(const AttentionParams& p);

/// Enqueues the call on p.stream; may be captured in a CUDA graph. Throws Unsupported where no kernel is built for the
/// call, System where a CUDA call fails.
void sm90_decode(const AttentionParams& p);

}  // namespace longhaul
