#include "attention/sm90/decode/parts.h"

#include <algorithm>

#include "attention/sm90/decode/plan.h"

namespace longhaul {
namespace {

using namespace sm90;

DecodeTiles tiles_of(const AttentionParams& p, int b) {
  return decode_tiles(static_cast<int>(p.q_length(b)), static_cast<int>(p.kv_length(b)), p.window_left);
}

int units_of(const AttentionParams& p, int b) {
  return decode_units(static_cast<int>(p.q_length(b)), tiles_of(p, b).count, p.batch_invariant);
}

}  // namespace

std::vector<KeyRange> sm90_decode_parts(const AttentionParams& p, int multiprocessors, int request, int head_kv) {
  const DecodeTiles tiles = tiles_of(p, request);
  if (tiles.count == 0) return {};
  int64_t all = 0, first = 0;
  for (int b = 0; b < p.batch; ++b) {
    if (b == request) first = all;
    all += int64_t{units_of(p, b)} * p.heads_kv;
  }
  const int units = units_of(p, request);
  first += int64_t{head_kv} * units;
  const int blocks = decode_blocks(all, multiprocessors, p.batch_invariant);
  const int row_warps = decode_row_warps(static_cast<int>(p.q_length(request)) * p.group);
  const int runs = kDecodeWarps / row_warps;

  std::vector<KeyRange> parts;
  for (int unit = 0; unit < units;) {
    Run segment{unit, 1};
    if (p.batch_invariant) {
      segment = {unit * kDecodeInvariantTiles,
                 std::min(kDecodeInvariantTiles, tiles.count - unit * kDecodeInvariantTiles)};
      ++unit;
    } else {
      const int block = decode_block_of(all, blocks, first + unit);
      const int64_t end = std::min<int64_t>(decode_first_unit(all, blocks, block + 1) - first, units);
      segment.count = static_cast<int>(end) - unit;
      unit = static_cast<int>(end);
    }
    for (int i = 0; i < runs; ++i) {
      const Run run = run_of(segment.count, runs, i);
      if (run.count == 0) continue;
      const int64_t end = int64_t{tiles.newest} - segment.first - run.first + 1;
      parts.push_back({(end - run.count) * kDecodeTileKeys, end * kDecodeTileKeys});
    }
  }
  return parts;
}

}  // namespace longhaul
