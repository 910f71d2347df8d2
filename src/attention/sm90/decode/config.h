// Tile sizes and shared memory of a decode kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/sm90/decode/plan.h"
#include "ptx/mbarrier.h"

namespace longhaul::sm90 {

template <class Element_, int kHeadSize_, bool kSkip_>
struct DecodeConfig {
  using Element = Element_;
  static constexpr int kHeadSize = kHeadSize_;
  static constexpr bool kSkip = kSkip_;

  static constexpr int kTileKeys = kDecodeTileKeys, kBlockKeys = kDecodeBlockKeys;
  static constexpr int kBlocks = kTileKeys / kBlockKeys;
  static constexpr int kWarps = kDecodeWarps, kThreads = 32 * kWarps;
  static constexpr int kPanels = kHeadSize / 64;  ///< 64 columns of 2 bytes are one 128-byte swizzle row
  static constexpr int kTileBytes = kTileKeys * kHeadSize * 2;
  /// 192 KB in flight or in use: with 1.2 us from request to arrival, 36 bytes a nanosecond (a multiprocessor's share
  /// of 4.8 TB/s) need 43 KB on their way at any time.
  static constexpr int kSlots = 196608 / kTileBytes;
  /// Floats of a merged row: 4 more than it has columns, so that the rows a warp writes fall into different banks.
  static constexpr int kMergeRow = kHeadSize + 4;

  struct Shared {
    alignas(1024) uint8_t tiles[kSlots][kTileBytes];
    float merge[kWarps][16][kMergeRow];
    float merge_base[kWarps][16], merge_sum[kWarps][16];
    ptx::Mbarrier full[kSlots];
    uint8_t votes[kWarps];  ///< blocks that each of the warps with the same keys would keep
  };
  static constexpr size_t kSharedBytes = sizeof(Shared);
  /// A block of the merge kernel, which takes the 1 KB of every block, must fit beside this one.
  static_assert(kSharedBytes + 2 * 1024 <= 228 * 1024);
};

}  // namespace longhaul::sm90
