// Descriptions of tensors for the copy engine.
#pragma once

#include <cuda.h>

#include "attention/params.h"

namespace longhaul::sm90 {

/// Query: boxes of 64 columns by `rows` tokens of one head.
CUtensorMap query_map(const AttentionParams& p, int rows);

/// Keys or values: boxes of 64 columns by `rows` tokens of one head and page.
CUtensorMap key_map(const AttentionParams& p, int rows);
CUtensorMap value_map(const AttentionParams& p, int rows);

}  // namespace longhaul::sm90
