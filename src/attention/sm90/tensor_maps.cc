#include "attention/sm90/tensor_maps.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <span>

#include "longhaul/error.h"

namespace longhaul::sm90 {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// Found at run time, so that the library also loads where there is no driver.
Encode encode_function() {
  static const Encode function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess)
      throw System(fmt::format("the CUDA driver has no cuTensorMapEncodeTiled ({}); CUDA 12 or newer is needed",
                               cudaGetErrorName(error)));
    return reinterpret_cast<Encode>(found);
  }();
  return function;
}

struct Layout {
  const char* name;
  const void* data;
  int64_t d, tokens, heads, pages;
  int64_t token, head, page;  // strides in elements
};

Layout key_layout(const AttentionParams& p) {
  const bool paged = p.page_size > 0;
  return {"key",     p.k,      p.d,     paged ? p.page_size : p.kv_rows, p.heads_kv, paged ? p.kv_rows : 1,
          p.k_token, p.k_head, p.k_page};
}

Layout value_layout(const AttentionParams& p) {
  const bool paged = p.page_size > 0;
  return {"value",   p.v,      p.dv,    paged ? p.page_size : p.kv_rows, p.heads_kv, paged ? p.kv_rows : 1,
          p.v_token, p.v_head, p.v_page};
}

constexpr int64_t kBytes = 2;   // of an element
constexpr int64_t kPanel = 64;  // columns that a 128-byte swizzle row holds

// A dimension of one element may have any stride; the copy engine wants a multiple of 16 bytes.
cuuint64_t stride_bytes(const Layout& t, int64_t extent, int64_t elements) {
  return static_cast<cuuint64_t>((extent <= 1 ? t.d : elements) * kBytes);
}
cuuint64_t at_least_one(int64_t n) { return static_cast<cuuint64_t>(n < 1 ? 1 : n); }

// Without fetching 256 bytes where 128 are asked for: with it a stream of tiles came at 4.15 TB/s instead of 4.59.
constexpr CUtensorMapL2promotion kFetch = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

CUtensorMap encode(const Layout& t, DType dtype, std::span<const cuuint64_t> sizes, std::span<const cuuint64_t> strides,
                   std::span<const cuuint32_t> box) {
  constexpr cuuint32_t kSteps[] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_function()(
      &map, dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      static_cast<cuuint32_t>(sizes.size()), const_cast<void*>(t.data), sizes.data(), strides.data(), box.data(),
      kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, kFetch, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw System(fmt::format("cuTensorMapEncodeTiled failed for {} with error {}", t.name, static_cast<int>(result)));
  return map;
}

CUtensorMap panel_map(const Layout& t, DType dtype, int rows) {
  const cuuint64_t sizes[] = {at_least_one(t.d), at_least_one(t.tokens), at_least_one(t.heads), at_least_one(t.pages)};
  const cuuint64_t strides[] = {stride_bytes(t, t.tokens, t.token), stride_bytes(t, t.heads, t.head),
                                stride_bytes(t, t.pages, t.page)};
  const cuuint32_t box[] = {kPanel, static_cast<cuuint32_t>(rows), 1, 1};
  return encode(t, dtype, sizes, strides, box);
}

CUtensorMap row_map(const Layout& t, DType dtype, int rows) {
  const auto panels = static_cast<cuuint32_t>(t.d / kPanel);
  const cuuint64_t sizes[] = {kPanel, at_least_one(t.tokens), panels, at_least_one(t.heads), at_least_one(t.pages)};
  const cuuint64_t strides[] = {stride_bytes(t, t.tokens, t.token), kPanel * kBytes, stride_bytes(t, t.heads, t.head),
                                stride_bytes(t, t.pages, t.page)};
  const cuuint32_t box[] = {kPanel, static_cast<cuuint32_t>(rows), panels, 1, 1};
  return encode(t, dtype, sizes, strides, box);
}

}  // namespace

CUtensorMap query_map(const AttentionParams& p, int rows) {
  return panel_map({"query", p.q, p.d, p.total_q, p.heads_q, 1, p.q_token, p.q_head, 0}, p.q_dtype, rows);
}
CUtensorMap key_map(const AttentionParams& p, int rows) { return panel_map(key_layout(p), p.kv_dtype, rows); }
CUtensorMap value_map(const AttentionParams& p, int rows) { return panel_map(value_layout(p), p.kv_dtype, rows); }
CUtensorMap key_row_map(const AttentionParams& p, int rows) { return row_map(key_layout(p), p.kv_dtype, rows); }
CUtensorMap value_row_map(const AttentionParams& p, int rows) { return row_map(value_layout(p), p.kv_dtype, rows); }

}  // namespace longhaul::sm90
