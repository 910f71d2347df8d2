// The kernels of one kind of matrix tiles in one translation unit: prefill where query, key and value are exact in
// bf16; everything else is LONGHAUL_VECTOR_KERNELS'. Include the simd header first.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "attention/cpu/kernels.h"
#include "attention/mask_layout.h"
#include "core/mutation.h"
#include "longhaul/dtype.h"

#include "attention/cpu/math-inl.h"
#include "attention/cpu/rows-inl.h"

// Each needs those above it: the blank lines keep the formatter from sorting them.
#include "attention/cpu/prefill_group-inl.h"

#include "attention/cpu/prefill_tiles-inl.h"

#include "attention/cpu/prefill-inl.h"
#include "attention/cpu/prefill_kernels-inl.h"
#include "attention/cpu/prefill_votes-inl.h"

namespace longhaul::LONGHAUL_ISA {

int tile_positions(const AttentionParams& p) {
  return prefill_on_tiles(p.q_dtype, p.kv_dtype) ? prefill_item_positions(p.group, kPrefillTileItemRows)
                                                 : LONGHAUL_VECTOR_KERNELS.prefill_positions(p);
}
size_t tile_scratch_bytes(const AttentionParams& p) {
  return prefill_on_tiles(p.q_dtype, p.kv_dtype) ? prefill_scratch_bytes(p)
                                                 : LONGHAUL_VECTOR_KERNELS.prefill_scratch_bytes(p);
}
void tile_item(const AttentionParams& p, const PrefillItem& item, void* scratch) {
  return prefill_on_tiles(p.q_dtype, p.kv_dtype) ? prefill_item(p, item, scratch)
                                                 : LONGHAUL_VECTOR_KERNELS.prefill_item(p, item, scratch);
}
size_t decode_scratch_bytes(const AttentionParams& p) { return LONGHAUL_VECTOR_KERNELS.decode_scratch_bytes(p); }
void decode_item(const AttentionParams& p, const DecodeItem& item, void* scratch) {
  LONGHAUL_VECTOR_KERNELS.decode_item(p, item, scratch);
}
void decode_merge(const AttentionParams& p, int request, int head_kv, const float* partials, int parts, void* scratch) {
  LONGHAUL_VECTOR_KERNELS.decode_merge(p, request, head_kv, partials, parts, scratch);
}

}  // namespace longhaul::LONGHAUL_ISA

#define LONGHAUL_KERNEL_TABLE                                                                     \
  {LONGHAUL_ISA::tile_positions,       LONGHAUL_ISA::tile_scratch_bytes, LONGHAUL_ISA::tile_item, \
   LONGHAUL_ISA::decode_scratch_bytes, LONGHAUL_ISA::decode_item,        LONGHAUL_ISA::decode_merge}
