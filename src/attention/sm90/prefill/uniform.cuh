// What a warpgroup's control flow depends on, the same in all lanes and said so (../uniform.cuh).
#pragma once

#include "attention/sm90/prefill/rows.cuh"
#include "attention/sm90/uniform.cuh"

namespace longhaul::sm90 {

__device__ __forceinline__ GroupTiles uniform(const GroupTiles& x) {
  return {uniform(x.newer),     uniform(x.count), uniform(x.first_key),
          uniform(x.kv_length), uniform(x.begin), uniform(x.end)};
}

__device__ __forceinline__ FullView uniform(const FullView& x) { return {uniform(x.begin), uniform(x.end)}; }

}  // namespace longhaul::sm90
