#include "attention/sm90/decode/decode.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "attention/sm90/decode/instantiations.h"
#include "attention/sm90/decode/merge.cuh"
#include "attention/sm90/multiprocessors.h"
#include "attention/sm90/status.h"
#include "attention/sm90/tensor_maps.h"
#include "core/cuda/check.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using namespace sm90;

constexpr float kLog2e = 1.4426950408889634F;

DecodeLauncher find_launcher(const AttentionParams& p) {
  const bool skip = p.lambda_kind != Lambda::Kind::none;
  for (const DecodeInstantiation& candidate : kDecodeInstantiations)
    if (candidate.dtype == p.q_dtype && candidate.head_size == p.d && candidate.skip == skip) return candidate.launch;
  throw Unsupported(fmt::format("query has dtype {} and head size {}, but the Hopper decode kernels have none for it",
                                dtype_name(p.q_dtype), p.d));
}

void check_rows(const AttentionParams& p) {
  if (p.group > kDecodeMaxRows)
    throw Unsupported(fmt::format("query has {} heads for each of key, but the Hopper decode kernels take at most {}",
                                  p.group, kDecodeMaxRows));
}

int64_t part_rows(const AttentionParams& p) {
  return std::min<int64_t>(kDecodeMaxRows, p.group * std::min<int64_t>(kDecodeMaxTokens, p.total_q));
}

/// Most parts that blocks can share. The lengths are on the device, so in batch-invariant mode this is a bound: a part
/// for each 4096 keys there is room for, and one more for each request.
int64_t part_slots(const AttentionParams& p) {
  if (!p.batch_invariant) return int64_t{2} * usable_multiprocessors();
  constexpr int64_t kKeys = int64_t{kDecodeTileKeys} * kDecodeInvariantTiles;
  const int64_t keys = p.page_size > 0 ? int64_t{p.batch} * p.max_pages * p.page_size : p.kv_rows;
  return (keys / kKeys + 2 * int64_t{p.batch}) * p.heads_kv;
}

int box_shift(int keys) { return std::countr_zero(static_cast<unsigned>(keys)); }

void set_inputs(const AttentionParams& a, DecodeKernelParams& p) {
  p.q = a.q;
  p.q_token = a.q_token;
  p.q_head = a.q_head;
  p.batch_invariant = a.batch_invariant;
  p.batch = a.batch;
  p.heads_q = a.heads_q;
  p.heads_kv = a.heads_kv;
  p.group = a.group;
  p.total_q = a.total_q;
  p.kv_rows = a.kv_rows;
  p.cu_q = a.cu_q;
  p.cu_kv = a.cu_kv;
  p.kv_lengths = a.kv_lengths;
  p.page_table = a.page_table;
  p.page_table_request = a.page_table_request;
  p.page_size = a.page_size;
  p.max_pages = a.max_pages;
  if (a.page_size > 0) p.page_reciprocal = page_reciprocal(a.page_size);
  // As few copies as pages allow. Where blocks may be dropped, a copy brings the values of one.
  const int keys = std::gcd(a.page_size > 0 ? a.page_size : kDecodeTileKeys, kDecodeTileKeys);
  p.k_box_shift = box_shift(keys);
  p.v_box_shift = box_shift(a.lambda_kind == Lambda::Kind::none ? keys : kDecodeBlockKeys);
  p.k = key_row_map(a, 1 << p.k_box_shift);
  p.v = value_row_map(a, 1 << p.v_box_shift);
}

void set_rule(const AttentionParams& a, DecodeKernelParams& p) {
  p.scale_log2 = (a.soft_cap > 0 ? 1 : a.scale) * kLog2e;
  p.raw_per_log2 = 1 / p.scale_log2;
  p.cap = a.soft_cap;
  p.cap_scale = a.soft_cap > 0 ? a.scale / a.soft_cap : 0;
  p.causal = a.causal;
  p.window_left = a.window_left;
  p.sinks = a.sinks;
  p.lambda = a.lambda;
  p.lambdas = a.lambda_kind == Lambda::Kind::per_head ? a.lambdas : nullptr;
  p.lambda_request = a.lambda_request;
  p.lambda_head = a.lambda_head;
  p.rule = a.rule;
}

void set_results(const AttentionParams& a, DecodeKernelParams& p) {
  p.out = a.out;
  p.out_token = a.out_token;
  p.out_head = a.out_head;
  p.lse = a.lse;
  p.lse_head = a.lse_head;
  p.lse_token = a.lse_token;
  p.counters = a.counters;
  p.counters_head = a.counters_head;
  p.counters_kind = a.counters_kind;
  p.skip_mask = a.skip_mask;
  p.mask_groups = a.mask_groups;
  p.mask_blocks = a.mask_blocks;
  p.status = sm90_status_word();
  p.part_rows = static_cast<int32_t>(part_rows(a));
  p.part_out = static_cast<float*>(a.workspace);
  p.part_sums = reinterpret_cast<float2*>(p.part_out + part_slots(a) * p.part_rows * a.dv);
}

}  // namespace

size_t sm90_decode_workspace_bytes(const AttentionParams& p) {
  check_rows(p);
  return static_cast<size_t>(part_slots(p) * part_rows(p)) *
         (static_cast<size_t>(p.dv) * sizeof(float) + sizeof(float2));
}

void sm90_decode(const AttentionParams& a) {
  if (a.batch == 0 || a.total_q == 0) return;
  check_rows(a);
  const DecodeLauncher launch = find_launcher(a);
  DecodeKernelParams p{};
  p.multiprocessors = usable_multiprocessors();
  set_inputs(a, p);
  set_rule(a, p);
  set_results(a, p);
  const auto stream = static_cast<cudaStream_t>(a.stream);
  // After everything that may refuse the call: what is refused has changed nothing.
  if (a.skip_mask != nullptr)
    check_cuda(cudaMemsetAsync(a.skip_mask, 0, static_cast<size_t>(a.heads_kv * a.mask_groups * a.mask_blocks), stream),
               "cudaMemsetAsync");
  check_cuda(launch(p, stream), "the launch of the decode kernel");
  check_cuda(launch_decode_merge(p, a.out_dtype, a.dv, stream), "the launch of the kernel that merges parts");
}

}  // namespace longhaul
