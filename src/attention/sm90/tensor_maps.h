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

/// The same, boxes of whole rows (rank 5, for which a box's columns come 64 at a time): in shared memory all tokens'
/// first 64 columns, then all tokens' next ones.
CUtensorMap key_row_map(const AttentionParams& p, int rows);
CUtensorMap value_row_map(const AttentionParams& p, int rows);

}  // namespace longhaul::sm90
