// The one contract between the API and every kernel: sizes, strides (in elements) and pointers, already checked.
#pragma once

#include <cstdint>

#include "longhaul/attention.h"

namespace longhaul {

/// Lambdas that one call can probe: a bit each of a block's 32-bit mask.
inline constexpr int kMaxProbes = 32;

/// On a CUDA device the host checks shapes, strides and dtypes, and never reads what lengths, page table, lambdas,
/// sinks and page contents hold: q_length() and its like are for CPU tensors only.
struct AttentionParams {
  Device device = Device::cpu;
  int32_t batch = 0, heads_q = 0, heads_kv = 0;
  int32_t group = 0;      // query heads per KV head
  int32_t d = 0, dv = 0;  // head size of query/key, of value/output
  int64_t total_q = 0;
  DType q_dtype{}, kv_dtype{}, out_dtype{};

  const void* q = nullptr;
  int64_t q_token = 0, q_head = 0;
  const void* k = nullptr;
  int64_t k_page = 0, k_token = 0, k_head = 0;  // k_page only when paged
  const void* v = nullptr;
  int64_t v_page = 0, v_token = 0, v_head = 0;
  void* out = nullptr;
  int64_t out_token = 0, out_head = 0;
  float* lse = nullptr;
  int64_t lse_head = 0, lse_token = 0;

  const int32_t* cu_q = nullptr;        // [batch + 1], contiguous
  const int32_t* cu_kv = nullptr;       // ragged
  int64_t kv_rows = 0;                  // rows of the keys' first dimension: tokens (ragged) or pages (paged)
  int32_t page_size = 0;                // 0: ragged
  const int32_t* page_table = nullptr;  // [batch, max_pages]
  int32_t max_pages = 0;
  int64_t page_table_request = 0;
  const int32_t* kv_lengths = nullptr;

  float scale = 0;  // of q.k, natural units, softmax_scale alone
  bool causal = true;
  int64_t window_left = -1;
  float soft_cap = 0;
  const float* sinks = nullptr;  // contiguous
  // Scales of fp8 inputs; null: 1. Stride 0: one for all heads.
  const float *q_scale = nullptr, *k_scale = nullptr, *v_scale = nullptr;
  int64_t q_scale_head = 0, k_scale_head = 0, v_scale_head = 0;

  Lambda::Kind lambda_kind = Lambda::Kind::none;
  float lambda = 0;
  const float* lambdas = nullptr;
  int64_t lambda_request = 0, lambda_head = 0;
  SkipRule rule = SkipRule::max;

  int64_t* counters = nullptr;  // [voting_heads, 4]
  int64_t counters_head = 0, counters_kind = 0;
  // [voting_heads, groups, blocks], contiguous. CUDA: the caller's groups and blocks, which the kernel checks.
  uint8_t* skip_mask = nullptr;
  int64_t mask_heads = 0, mask_groups = 0, mask_blocks = 0;
  int32_t probes = 0;
  const float* probe_lambdas = nullptr;  // [probes]
  int64_t* probe_skipped = nullptr;      // [voting_heads, probes], contiguous

  bool batch_invariant = false;
  int threads = 0;  // resolved, >= 1
  void* workspace = nullptr;
  void* stream = nullptr;  // cudaStream_t

  int64_t q_length(int b) const { return cu_q[b + 1] - cu_q[b]; }
  int64_t kv_length(int b) const { return page_size ? kv_lengths[b] : cu_kv[b + 1] - cu_kv[b]; }

  // Element offset of key (value) token t of request b, head h.
  int64_t k_offset(int b, int64_t t, int h) const { return kv_offset(b, t, h, k_page, k_token, k_head); }
  int64_t v_offset(int b, int64_t t, int h) const { return kv_offset(b, t, h, v_page, v_token, v_head); }

  float lambda_of(int b, int head_q) const {
    return lambda_kind == Lambda::Kind::per_head ? lambdas[b * lambda_request + head_q * lambda_head] : lambda;
  }
  float q_scale_of(int head_q) const { return q_scale ? q_scale[head_q * q_scale_head] : 1.0F; }
  float k_scale_of(int head_kv) const { return k_scale ? k_scale[head_kv * k_scale_head] : 1.0F; }
  float v_scale_of(int head_kv) const { return v_scale ? v_scale[head_kv * v_scale_head] : 1.0F; }

 private:
  int64_t kv_offset(int b, int64_t t, int h, int64_t page, int64_t token, int64_t head) const {
    if (page_size == 0) return (cu_kv[b] + t) * token + h * head;
    return page_table[b * page_table_request + t / page_size] * page + (t % page_size) * token + h * head;
  }
};

/// Checks all that a call reads: tensors, lengths, options, lambda. Results, reports and execution are left at their
/// defaults.
AttentionParams make_input_params(const AttentionArgs& args, Phase phase);

/// Checks every argument (docstrings of AttentionArgs) and resolves defaults. Throws InvalidArgument or Unsupported.
AttentionParams make_params(const AttentionArgs& args, Phase phase);

}  // namespace longhaul
