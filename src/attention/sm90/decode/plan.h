// Which tiles of which heads each block of the decode kernel works on, and which parts of a head's keys that makes:
// pure functions of the lengths, shared by host, kernels and oracle.
//
// The tiles of all requests and heads stand in one row, request by request, head by head, newest first; every block
// takes an equal run of it. So however the lengths differ, no multiprocessor has a tile more than another, and no
// counter has to be cleared or drawn from.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LONGHAUL_HOST_DEVICE __host__ __device__
#else
#define LONGHAUL_HOST_DEVICE
#endif

namespace longhaul::sm90 {

inline constexpr int kDecodeTileKeys = 64, kDecodeBlockKeys = 16;
inline constexpr int kDecodeWarps = 4;
/// Rows (query tokens x query heads of a KV head) of a request that a block holds at most.
inline constexpr int kDecodeMaxRows = 16 * kDecodeWarps;
inline constexpr int kDecodeMaxTokens = 16;
/// Tiles below which a block costs more to start and to merge than it saves: one for each warp.
inline constexpr int kDecodeLeastTiles = 4;
/// Tiles of a part in batch-invariant mode: 4096 keys.
inline constexpr int kDecodeInvariantTiles = 64;

/// The key tiles that the rows of a request see.
struct DecodeTiles {
  int newest = 0;  ///< index of the newest
  int count = 0;
};
LONGHAUL_HOST_DEVICE inline DecodeTiles decode_tiles(int q_length, int kv_length, int64_t window_left) {
  if (q_length == 0 || kv_length == 0) return {};
  const int64_t oldest = int64_t{kv_length} - q_length - window_left;
  const int begin = window_left < 0 || oldest < 0 ? 0 : static_cast<int>(oldest);
  const int newest = (kv_length - 1) / kDecodeTileKeys;
  return {newest, newest - begin / kDecodeTileKeys + 1};
}

/// What a head of a request adds to the row that is cut: its tiles, or in batch-invariant mode its parts. At least one,
/// so that somebody writes the result of a request without keys; none without queries.
LONGHAUL_HOST_DEVICE inline int decode_units(int q_length, int tiles, bool batch_invariant) {
  if (q_length == 0) return 0;
  if (tiles == 0) return 1;
  return batch_invariant ? (tiles + kDecodeInvariantTiles - 1) / kDecodeInvariantTiles : tiles;
}

/// a / b of numbers that are not negative: a 64-bit division takes a GPU a hundred instructions.
LONGHAUL_HOST_DEVICE inline int64_t quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

/// Blocks that get work.
LONGHAUL_HOST_DEVICE inline int decode_blocks(int64_t units, int multiprocessors, bool batch_invariant) {
  const int64_t least = batch_invariant ? 1 : kDecodeLeastTiles, blocks = quotient(units + least - 1, least);
  return blocks < multiprocessors ? static_cast<int>(blocks) : multiprocessors;
}

/// 2^31 / (page size / 16), rounded up; page sizes are multiples of 16 up to 256.
LONGHAUL_HOST_DEVICE inline uint32_t page_reciprocal(int page_size) {
  const int sixteens = page_size / 16;
  return static_cast<uint32_t>(((int64_t{1} << 31) + sixteens - 1) / sixteens);
}

/// key / page size, exact for every key from 0 to 2^31 - 1: the reciprocal is too large by less than 16 / 2^31 of
/// itself, and key / 16 lies below 2^27.
LONGHAUL_HOST_DEVICE inline int quotient_by_page(int key, uint32_t reciprocal) {
  return static_cast<int>(uint64_t{static_cast<uint32_t>(key) >> 4 << 1} * reciprocal >> 32);
}

/// First unit of a block; of the one past the last: all units.
LONGHAUL_HOST_DEVICE inline int64_t decode_first_unit(int64_t units, int blocks, int block) {
  return quotient(units * block, blocks);
}

/// The block that has a unit.
LONGHAUL_HOST_DEVICE inline int decode_block_of(int64_t units, int blocks, int64_t unit) {
  return static_cast<int>(quotient((unit + 1) * blocks - 1, units));
}

/// Warps of a block that share a copy of keys and values, each with 16 of the rows; the others have tiles of their own.
LONGHAUL_HOST_DEVICE inline int decode_row_warps(int rows) { return rows <= 16 ? 1 : rows <= 32 ? 2 : 4; }

/// Run `index` of `count` things shared out in `runs`, the first ones longer.
struct Run {
  int first = 0, count = 0;
};
LONGHAUL_HOST_DEVICE inline Run run_of(int count, int runs, int index) {
  const int base = count / runs, extra = count % runs;
  return {index * base + (index < extra ? index : extra), base + (index < extra ? 1 : 0)};
}

}  // namespace longhaul::sm90
