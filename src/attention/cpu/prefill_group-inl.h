// Prefill: a voting group of 16 rows, what one tile means to it, and the rows of a tile as they lie in the cache.
#pragma once

LONGHAUL_TARGET_BEGIN
namespace longhaul::LONGHAUL_ISA {

inline constexpr int kRows = 16;  // rows of a voting group
inline constexpr int kVecs = kRows / kLanes;
static_assert(kRows == kCpuPrefill.group_rows);

/// The part of a tile that a group's rows see, by row: keys [low, high) counted from the tile's first key.
struct TileMask {
  alignas(64) float low[kRows], high[kRows];
};

/// Statistics of one tile of one group, by row.
struct TileScores {
  alignas(64) float scores[kTile * kRows];  // log2 units; -inf where not visible; then the weights
  alignas(64) float block_max[kBlocks][kRows];
  alignas(64) float block_bad[kBlocks][kRows];  // 0, or NaN where the row sees a score in the block that is not finite
};

/// One voting group of one head: 16 rows at absolute positions [position, position + 16), of which [begin, end) exist.
struct Group {
  int head;
  int64_t position;
  int begin, end;
  int64_t mask_group;  // its index in skip_mask
  KeyRange keys;       // union over its rows
  float lambda, log2_lambda;
  bool first;  // no tile visited yet
  int64_t visible, skipped;
  int64_t* probe_skipped;
  float scale;  // of q.k, to log2 units or to units of the soft cap
  alignas(64) float max[kRows], sum[kRows];
  alignas(64) float base[kRows];  // what the weights refer to: sum and output are of 2^(score - base)
  float* query;                   // as Products::put_query() stores it
  float* output;                  // at Products::output_index()
  float* pending;                 // Products::kPendingFloats: what has not joined the output yet
  float* probe_sum;               // [probes][16], kept sum under each λ (rule sum)

  bool row_exists(int r) const { return r >= begin && r < end; }
};

/// Blocks of a tile that are computed, in visiting order.
struct KeptBlocks {
  int count = 0;
  int block[kBlocks];
};

/// What one group adds to its output.
struct Addend {
  KeptBlocks kept;
  const float* weights;  // [64][16]
  float* output;         // at Products::output_index()
  F rescale[kVecs];      // of the output before
};

/// Where the keys and values of a tile lie. Those outside `keys` do not exist for the item and read as zeros.
struct PrefillTile {
  const AttentionParams& p;
  const PrefillItem& item;
  int64_t begin = 0;  // key 0 of the tile
  KeyRange keys = {};

  bool exists(int j) const { return begin + j >= keys.begin && begin + j < keys.end; }
  int64_t key_offset(int j) const { return p.k_offset(item.request, begin + j, item.head_kv); }
  int64_t value_offset(int j) const { return p.v_offset(item.request, begin + j, item.head_kv); }
  void read_key(int j, int d, float* to) const {
    if (exists(j)) return read_row(p.k, p.kv_dtype, key_offset(j), d, to);
    for (int c = 0; c < d; ++c) to[c] = 0;
  }
  void read_value(int j, int d, float* to) const {
    if (exists(j)) return read_row(p.v, p.kv_dtype, value_offset(j), d, to);
    for (int c = 0; c < d; ++c) to[c] = 0;
  }
};

}  // namespace longhaul::LONGHAUL_ISA
LONGHAUL_TARGET_END
