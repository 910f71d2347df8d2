// Tile sizes, shared memory and roles of a prefill kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/sm90/prefill/tile.h"
#include "ptx/mbarrier.h"

namespace longhaul::sm90 {

/// One piece of work: 128 query positions of one head and the key tiles they see, newest first.
struct WorkItem {
  int32_t head;  ///< -1: no more work
  int32_t request;
  int32_t position;        ///< absolute position of the tile's first row, a multiple of 128
  int32_t first_position;  ///< of the request's first query
  int32_t kv_length;
  int32_t q_token;   ///< token of position 0
  int32_t kv_token;  ///< ragged: token of key 0
  int32_t newest_tile, tiles;
};

template <class Element_, int kHeadSize_, bool kSkip_>
struct PrefillConfig {
  using Element = Element_;
  static constexpr int kHeadSize = kHeadSize_;
  static constexpr bool kSkip = kSkip_;

  static constexpr int kTileKeys = kSm90TileKeys, kBlockKeys = 16, kGroupRows = 64;
  static constexpr int kBlocks = kTileKeys / kBlockKeys;
  static constexpr int kConsumers = 2;  ///< warpgroups that compute, a voting group each
  static constexpr int kTileRows = kConsumers * kGroupRows;
  static_assert(kTileRows == kSm90TileRows);
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kStages = 2;  ///< of key and value tiles

  // 168 registers a thread at launch; the producer needs few, so that two consumers get 232.
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

  static constexpr int kPanels = kHeadSize / 64;  ///< 64 columns of 2 bytes are one 128-byte swizzle row
  static constexpr int kQueryPanelBytes = kTileRows * 128, kKeyPanelBytes = kTileKeys * 128;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes, kTileBytes = kPanels * kKeyPanelBytes;

  struct Shared {
    alignas(1024) uint8_t query[kQueryBytes];
    alignas(1024) uint8_t key[kStages][kTileBytes];
    alignas(1024) uint8_t value[kStages][kTileBytes];
    ptx::Mbarrier query_full, query_empty;
    ptx::Mbarrier key_full[kStages], key_empty[kStages];
    ptx::Mbarrier value_full[kStages], value_empty[kStages];
    ptx::Mbarrier item_full[2], item_empty[2];
    ptx::Mbarrier draw_full[2], draw_empty[2];  ///< draw_empty: of the first block of a cluster, which draws for all
    int draws[2];
    WorkItem items[2];
    alignas(4) uint8_t votes[kConsumers][4];                         ///< blocks that each warp would skip
    uint32_t visible_tiles[kConsumers], skipped_blocks[kConsumers];  ///< counts of an item's tiles without a mask
  };
  static constexpr size_t kSharedBytes = sizeof(Shared);
};

/// Named barriers; 0 belongs to __syncthreads().
enum BarrierId : int { kTurnBarrier = 1, kVoteBarrier = 3 };

}  // namespace longhaul::sm90
