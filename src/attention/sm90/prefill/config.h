// Tile sizes, shared memory and roles of a prefill kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/sm90/prefill/tile.h"
#include "ptx/mbarrier.h"

namespace longhaul::sm90 {

/// One piece of work: 192 query positions of one head and the key tiles they see, newest first.
struct WorkItem {
  int32_t head;  ///< -1: no more work
  int32_t request;
  int32_t position;        ///< absolute position of the tile's first row, a multiple of 192
  int32_t first_position;  ///< of the request's first query
  int32_t kv_length;
  int32_t q_token;   ///< token of position 0
  int32_t kv_token;  ///< ragged: token of key 0
  int32_t newest_tile, tiles;
};

/// Where the next tile lies in the ring, and the parity of the phase in which it gets there.
template <int stages>
struct RingPlace {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <class Element_, int kHeadSize_, bool kSkip_>
struct PrefillConfig {
  using Element = Element_;
  static constexpr int kHeadSize = kHeadSize_;
  static constexpr bool kSkip = kSkip_;

  static constexpr int kTileKeys = kSm90TileKeys, kBlockKeys = 16;
  static constexpr int kGroupRows = kSm90GroupRows;  ///< a voting group: the rows of a warpgroup
  static constexpr int kBlocks = kTileKeys / kBlockKeys;
  static constexpr int kConsumers = 3;  ///< warpgroups that compute
  static constexpr int kTileRows = kConsumers * kGroupRows;
  static_assert(kTileRows == kSm90TileRows);
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kStages = 5;   ///< tiles in flight: keys and values in turn, in one ring
  static constexpr int kReports = 4;  ///< tiles of a group whose reports may wait

  // 128 registers a thread at launch; the producer needs few, so that three consumers get 160.
  static constexpr int kProducerRegisters = 32, kConsumerRegisters = 160;

  static constexpr int kPanels = kHeadSize / 64;  ///< 64 columns of 2 bytes are one 128-byte swizzle row
  static constexpr int kQueryPanelBytes = kTileRows * 128, kKeyPanelBytes = kTileKeys * 128;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes, kTileBytes = kPanels * kKeyPanelBytes;

  struct Shared {
    alignas(1024) uint8_t query[kQueryBytes];
    alignas(1024) uint8_t tiles[kStages][kTileBytes];
    ptx::Mbarrier query_full, query_empty;
    ptx::Mbarrier tile_full[kStages], tile_empty[kStages];
    ptx::Mbarrier item_full[2], item_empty[2];
    ptx::Mbarrier draw_full[2], draw_empty[2];  ///< draw_empty: of the first block of a cluster, which draws for all
    int draws[2];
    WorkItem items[2];
    ptx::Mbarrier report_full[kConsumers][kReports], report_empty[kConsumers][kReports];
    uint8_t reports[kConsumers][kReports];  ///< kept blocks of a tile
    ptx::Mbarrier vote_full[kConsumers];
    alignas(4) uint8_t votes[kConsumers][2][4];  ///< blocks of a tile that each warp would keep, of two tiles in turn
  };
  static constexpr size_t kSharedBytes = sizeof(Shared);
};

/// Named barriers of the warpgroups; 0 belongs to __syncthreads().
enum BarrierId : int { kConsumerBarrier = 1 };  // and the next ones: one a warpgroup

}  // namespace longhaul::sm90
