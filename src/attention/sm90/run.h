// Host side of the kernels for sm_90a, for code that knows no CUDA headers: the current device is checked first, then
// work is queued on the call's stream. In a build without CUDA every function throws Unsupported.
#pragma once

#include <cstddef>

#include "attention/params.h"

namespace longhaul {

/// Throws Unsupported, naming the device, unless the kernels serve the current one.
void require_sm90();

/// Device memory that the call needs.
size_t sm90_workspace_bytes(const AttentionParams& p, Phase phase);
Geometry sm90_geometry(Phase phase);
/// Reads the lengths with a copy that waits; InvalidArgument while the stream is capturing.
SkipMaskShape sm90_mask_shape(const AttentionParams& p, Phase phase);

/// Reports what an earlier call met in device memory, then clears the skip mask and starts the kernels.
void sm90_attention(const AttentionParams& checked, Phase phase);

}  // namespace longhaul
