#include "attention/sm90/prefill/tensor_maps.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

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

CUtensorMap encode(const Layout& t, DType dtype, int rows) {
  constexpr int64_t kBytes = 2;
  // A dimension of one element may have any stride; the copy engine wants a multiple of 16 bytes.
  const auto stride = [&](int64_t extent, int64_t elements) {
    return static_cast<cuuint64_t>(extent <= 1 ? t.d * kBytes : elements * kBytes);
  };
  const auto extent = [](int64_t n) { return static_cast<cuuint64_t>(n < 1 ? 1 : n); };
  const cuuint64_t sizes[] = {extent(t.d), extent(t.tokens), extent(t.heads), extent(t.pages)};
  const cuuint64_t strides[] = {stride(t.tokens, t.token), stride(t.heads, t.head), stride(t.pages, t.page)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(rows), 1, 1}, steps[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_function()(
      &map, dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
      const_cast<void*>(t.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw System(fmt::format("cuTensorMapEncodeTiled failed for {} with error {}", t.name, static_cast<int>(result)));
  return map;
}

}  // namespace

CUtensorMap query_map(const AttentionParams& p, int rows) {
  return encode({"query", p.q, p.d, p.total_q, p.heads_q, 1, p.q_token, p.q_head, 0}, p.q_dtype, rows);
}

CUtensorMap key_map(const AttentionParams& p, int rows) {
  const bool paged = p.page_size > 0;
  return encode({"key", p.k, p.d, paged ? p.page_size : p.kv_rows, p.heads_kv, paged ? p.kv_rows : 1, p.k_token,
                 p.k_head, p.k_page},
                p.kv_dtype, rows);
}

CUtensorMap value_map(const AttentionParams& p, int rows) {
  const bool paged = p.page_size > 0;
  return encode({"value", p.v, p.dv, paged ? p.page_size : p.kv_rows, p.heads_kv, paged ? p.kv_rows : 1, p.v_token,
                 p.v_head, p.v_page},
                p.kv_dtype, rows);
}

}  // namespace longhaul::sm90
