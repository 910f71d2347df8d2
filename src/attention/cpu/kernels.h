// The table of CPU kernels, one column per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/params.h"
#include "attention/tile_plan.h"
#include "core/cpu_features.h"

namespace longhaul {

/// One unit of prefill: all query heads of one KV head, over query rows [row_begin, row_end) of a request. The rows lie
/// within prefill_positions() absolute positions from a multiple of it.
struct PrefillItem {
  int request;
  int head_kv;
  int64_t row_begin, row_end;  // query index within the request
};

/// One unit of decode: all rows (query tokens x query heads) of some neighbouring KV heads over one part of the keys.
/// The heads advance tile by tile together, because their keys share memory pages and prefetched lines; none sees
/// another's state.
struct DecodeItem {
  int request;
  int head_begin, head_end;  // KV heads
  KeyRange keys;             // this part
  KeyRange newest_tile;      // seeds the reference; empty in the newest part, which computes it itself
  float* partial;  // of head_begin: rows x (dv + 2) floats: output, maximum (log2 units), sum; nullptr: final output
  int64_t partial_head;  // floats to the next head's
};

struct CpuKernels {
  /// Positions of one item.
  int (*prefill_positions)(const AttentionParams&);
  /// Bytes of scratch one thread needs.
  size_t (*prefill_scratch_bytes)(const AttentionParams&);
  void (*prefill_item)(const AttentionParams&, const PrefillItem&, void* scratch);
  size_t (*decode_scratch_bytes)(const AttentionParams&);
  void (*decode_item)(const AttentionParams&, const DecodeItem&, void* scratch);
  /// Merges `parts` partial results, newest first, that lie `rows * (dv + 2)` floats apart, and writes the output.
  void (*decode_merge)(const AttentionParams&, int request, int head_kv, const float* partials, int parts,
                       void* scratch);
};

const CpuKernels& cpu_kernels(Isa isa);

// Defined in kernels_<isa>.cc.
extern const CpuKernels kPortableKernels;
extern const CpuKernels kAvx2Kernels;
extern const CpuKernels kAvx512Kernels;
extern const CpuKernels kAmxKernels;
extern const CpuKernels kAmxEmulatedKernels;

/// Whether the kernels of Isa::amx run prefill on matrix tiles: where the inputs are exact in bf16.
constexpr bool prefill_on_tiles(DType query, DType kv) {
  const auto exact = [](DType dtype) { return dtype == DType::bf16 || dtype == DType::f8e4m3; };
  return exact(query) && exact(kv);
}

}  // namespace longhaul
