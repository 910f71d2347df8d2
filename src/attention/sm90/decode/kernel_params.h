// What the decode kernels receive: a plain struct passed by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/sm90/status.h"
#include "longhaul/attention.h"

namespace longhaul::sm90 {

struct DecodeKernelParams {
  CUtensorMap k, v;  // rank 5: 64 columns, token (in page), panel of 64 columns, head, page
  // A copy brings 2^shift keys, all of one page. Values of the skipping kernel: a block, so that dropped ones are not
  // read.
  int32_t k_box_shift, v_box_shift;

  const void* q;
  int64_t q_token, q_head;

  int32_t multiprocessors;
  bool batch_invariant;
  int32_t batch, heads_q, heads_kv, group;
  int64_t total_q, kv_rows;  // kv_rows: tokens if ragged, pages if paged
  const int32_t* cu_q;
  const int32_t* cu_kv;       // ragged
  const int32_t* kv_lengths;  // paged
  const int32_t* page_table;
  int64_t page_table_request;
  int32_t page_size, max_pages;  // page_size 0: ragged
  uint32_t page_reciprocal;      // for quotient_by_page()

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

  // Results of the parts of heads that several blocks share: a slot holds part_rows rows.
  float* part_out;    // [slots][part_rows][head size], relative to 2^base, not divided by the sum
  float2* part_sums;  // [slots][part_rows]: base (raw units), sum
  int32_t part_rows;
};

#ifdef __CUDACC__
/// Tells the host what a kernel has found wrong in device memory.
__device__ inline void set_status(const DecodeKernelParams& p, Sm90Status status) {
  reinterpret_cast<volatile uint8_t*>(p.status)[__ffs(static_cast<int>(status)) / 8] = 1;
}
#endif

}  // namespace longhaul::sm90
