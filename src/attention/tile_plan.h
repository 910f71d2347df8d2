// Where tiles, blocks, groups and splits lie: pure functions, tested exhaustively, shared by kernels and oracle.
#pragma once

#include <cstdint>

#include "attention/params.h"

namespace longhaul {

/// CPU kernels. On the shipped activations 16 x 16 votes reach sparsity 0.553 at a relative error of 0.01, 64 x 64
/// votes 0.443, and the published ascending 64 x 128 votes 0.255 (docs/skip-softmax.md).
inline constexpr Geometry kCpuPrefill{.tile_keys = 64, .block_keys = 16, .group_rows = 16};
inline constexpr Geometry kCpuDecode{.tile_keys = 64, .block_keys = 16, .group_rows = 0};

/// Rows (positions x query heads of a KV head) that should share one conversion of a key tile to fp32. The conversion
/// costs as much as about 3 rows of arithmetic, so 256 rows hide it; their fp32 state, 2 x 128 KB at head size 128,
/// still fits a 512 KB L2.
inline constexpr int kPrefillItemRows = 256;

/// The same on matrix tiles. A turned value tile costs as much as several groups of products, and machines with tiles
/// have 2 MB of L2: at 512 rows a Xeon reached 1,500 GFLOP/s where 256 gave 1,261 (8k, bf16, 2 cores, one run).
inline constexpr int kPrefillTileItemRows = 512;

/// Query positions of one prefill work item: item_rows over the query heads of a KV head, a multiple of the
/// group's rows and at least one group: with more than 16 heads an item has 16 rows of each, so more than
/// item_rows.
int prefill_item_positions(int heads_per_kv, int item_rows);

/// Half-open range of key positions.
struct KeyRange {
  int64_t begin = 0, end = 0;
  bool operator==(const KeyRange&) const = default;
  bool empty() const { return begin >= end; }
};

/// Keys that the query at absolute position `position` sees: [max(0, position - window_left), min(position + 1,
/// kv_length)), without the limit that is not set. Empty if there are none.
KeyRange visible_keys(int64_t position, int64_t kv_length, bool causal, int64_t window_left);

/// Rounds towards minus infinity; positions before the first key are negative.
constexpr int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

/// Number of parts a decode request's keys are split into. Depends on the lengths and heads of the batch, never on
/// threads; on kv_length alone when batch_invariant. `requests_times_heads` = batch x heads_kv.
int decode_splits(int64_t kv_length, int64_t requests_times_heads, bool batch_invariant);

/// Keys of part `index` (0 is the newest) of the range `keys` in `splits` parts cut at multiples of
/// kCpuDecode.tile_keys; parts differ by at most one tile, the newest are the longer ones. May be empty.
KeyRange decode_split(KeyRange keys, int splits, int index);

}  // namespace longhaul
