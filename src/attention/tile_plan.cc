#include "attention/tile_plan.h"

#include <algorithm>

namespace longhaul {
namespace {

// Enough parts to keep the largest machines we run on busy, however few heads there are; independent of the machine at
// hand, so that the bits are too.
constexpr int64_t kWantedParts = 64;
// Below this many keys a part costs more in seeding (one tile) and merging than it saves in waiting.
constexpr int64_t kKeysPerPart = 1024;
constexpr int64_t kBatchInvariantKeysPerPart = 4096;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

KeyRange visible_keys(int64_t position, int64_t kv_length, bool causal, int64_t window_left) {
  const int64_t begin = window_left >= 0 ? std::max<int64_t>(0, position - window_left) : 0;
  const int64_t end = causal ? std::min(position + 1, kv_length) : kv_length;
  return begin < end ? KeyRange{begin, end} : KeyRange{0, 0};
}

int decode_splits(int64_t kv_length, int64_t requests_times_heads, bool batch_invariant) {
  if (kv_length <= 0) return 1;
  if (batch_invariant) {
    return static_cast<int>(std::min(kWantedParts, ceil_div(kv_length, kBatchInvariantKeysPerPart)));
  }
  const int64_t wanted = ceil_div(kWantedParts, std::max<int64_t>(1, requests_times_heads));
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, ceil_div(kv_length, kKeysPerPart)));
}

KeyRange decode_split(KeyRange keys, int splits, int index) {
  if (keys.empty()) return {};
  const int64_t tile = kCpuDecode.tile_keys;
  const int64_t first_tile = keys.begin / tile;
  const int64_t tiles = ceil_div(keys.end, tile) - first_tile;
  // Part 0 is the newest; the first `extra` parts hold one tile more.
  const int64_t base = tiles / splits;
  const int64_t extra = tiles % splits;
  const int64_t newer = index * base + std::min<int64_t>(index, extra);  // tiles newer than this part
  const int64_t count = base + (index < extra ? 1 : 0);
  if (count == 0) return {};
  const int64_t end_tile = first_tile + tiles - newer;
  return {std::max(keys.begin, (end_tile - count) * tile), std::min(keys.end, end_tile * tile)};
}

int prefill_item_positions(int heads_per_kv, int item_rows) {
  const int group = kCpuPrefill.group_rows;
  return std::clamp(item_rows / heads_per_kv / group * group, group, item_rows);
}

}  // namespace longhaul
