// What the prefill kernels receive: a plain struct passed by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/sm90/status.h"
#include "longhaul/attention.h"

namespace longhaul::sm90 {

/// Work counter and its end; written by the prepare kernel, so that lengths may change under a CUDA graph.
struct PlanHeader {
  int32_t next_item;    ///< clusters draw items from it, but for their first; an item is a tile of p.ranks heads
  int32_t total_items;  ///< 0 where the lengths are malformed
};

/// One request of the work list, longest first.
struct RequestPlan {
  int32_t first_item;
  int32_t request;
};

struct PrefillKernelParams {
  CUtensorMap q, k, v;  // rank 4: head size, token (in page), head, page

  int32_t ranks;     // blocks of a cluster: 2 query heads of a KV head share each copy of its keys and values
  int32_t clusters;  // of the launch
  int32_t batch, heads_q, heads_kv, group;
  int64_t total_q, kv_rows;  // kv_rows: tokens if ragged, pages if paged
  const int32_t* cu_q;
  const int32_t* cu_kv;       // ragged
  const int32_t* kv_lengths;  // paged
  const int32_t* page_table;
  int64_t page_table_request;
  int32_t page_size, max_pages;  // page_size 0: ragged
  int32_t box_shift;             // a copy brings 64 columns of 2^box_shift keys, all of one page

  void* out;
  int64_t out_token, out_head;
  float* lse;
  int64_t lse_head, lse_token;

  float scale_log2;      // of raw scores, after the cap if there is one: raw * scale_log2 is the exponent of 2
  float raw_per_log2;    // 1 / scale_log2
  float cap, cap_scale;  // cap > 0: raw scores become cap * tanh(raw * cap_scale)
  bool causal;
  int64_t window_left;
  const float* sinks;

  float lambda;
  const float* lambdas;  // not null: [batch, heads_q]
  int64_t lambda_request, lambda_head;
  SkipRule rule;

  int64_t* counters;
  int64_t counters_head, counters_kind;
  uint8_t* skip_mask;
  int64_t mask_groups, mask_blocks;

  uint32_t* status;  // a byte for each Sm90Status, in host memory
  PlanHeader* header;
  RequestPlan* plan;    // [batch]
  int32_t* group_base;  // [batch]: first group of the request in the skip mask
};

#ifdef __CUDACC__
/// Tells the host what a kernel has found wrong in device memory.
__device__ inline void set_status(const PrefillKernelParams& p, Sm90Status status) {
  reinterpret_cast<volatile uint8_t*>(p.status)[__ffs(static_cast<int>(status)) / 8] = 1;
}
#endif

}  // namespace longhaul::sm90
