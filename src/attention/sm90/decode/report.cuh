// Counters and the skip mask: what the warps of a part say about its tiles.
#pragma once

#include "attention/sm90/decode/rows.cuh"
#include "attention/sm90/decode/stream.cuh"

namespace longhaul::sm90 {

template <class Config>
struct Report {
  const DecodeKernelParams& p;
  const Segment& s;
  const int lane;
  const bool active;  // one of the warps that share the keys counts for all
  uint64_t visible = 0, skipped = 0, bytes = 0;

  __device__ Report(const DecodeKernelParams& params, const Segment& segment, const Role& role, int lane_)
      : p(params),
        s(segment),
        lane(lane_),
        active(Config::kSkip && role.row_tile == 0 && (params.counters != nullptr || params.skip_mask != nullptr)) {}

  __device__ __forceinline__ void tile(int tile, uint32_t keep, bool whole) {
    if (!active) return;
    const int first_key = tile * Config::kTileKeys;
    if (p.skip_mask != nullptr && lane < Config::kBlocks)
      mark(first_key + lane * Config::kBlockKeys, (keep >> lane & 1) != 0);
    if (p.counters == nullptr) return;
    const int dropped = Config::kBlocks - __popc(keep);
    if (whole) {
      visible += s.rows * Config::kTileKeys;
      skipped += dropped * s.rows * Config::kBlockKeys;
      bytes += dropped * Config::kBlockKeys * Config::kHeadSize * 2;
    } else {
      count(first_key, keep);
    }
  }

  __device__ void finish() {
    if (!active || p.counters == nullptr || lane != 0) return;
    auto* counters = reinterpret_cast<unsigned long long*>(p.counters + s.head * p.counters_head);
    if (visible > 0) atomicAdd(counters, visible);
    if (skipped > 0) atomicAdd(counters + p.counters_kind, skipped);
    if (bytes > 0) atomicAdd(counters + 2 * p.counters_kind, bytes);
  }

 private:
  /// Keys that any row sees.
  __device__ int first_seen() const { return decode_row(p, s, 0).begin; }

  __device__ void mark(int key, bool keep) {
    if (key >= s.shape.kv_length || key + Config::kBlockKeys <= first_seen()) return;
    const int64_t block = key / Config::kBlockKeys;
    if (s.request >= p.mask_groups || block >= p.mask_blocks) return set_status(p, kSm90MaskTooSmall);
    p.skip_mask[(s.head * p.mask_groups + s.request) * p.mask_blocks + block] = keep ? 1 : 2;
  }

  /// Of a tile that some row sees only a part of; two rows a lane.
  __device__ void count(int first_key, uint32_t keep) {
    uint32_t seen = 0, lost = 0;
#pragma unroll 1
    for (int r = lane; r < s.rows; r += 32) {
      const DecodeRow row = decode_row(p, s, r);
#pragma unroll 1
      for (int b = 0; b < Config::kBlocks; ++b) {
        const int key = first_key + b * Config::kBlockKeys;
        const int scores = max(min(row.end, key + Config::kBlockKeys) - max(row.begin, key), 0);
        seen += scores;
        if (!(keep >> b & 1)) lost += scores;
      }
    }
    visible += __reduce_add_sync(0xffffffff, seen);
    skipped += __reduce_add_sync(0xffffffff, lost);
    for (int b = 0; b < Config::kBlocks; ++b) {
      const int key = first_key + b * Config::kBlockKeys;
      const int keys = min(s.shape.kv_length, key + Config::kBlockKeys) - max(first_seen(), key);
      if (!(keep >> b & 1) && keys > 0) bytes += keys * Config::kHeadSize * 2;
    }
  }
};

}  // namespace longhaul::sm90
