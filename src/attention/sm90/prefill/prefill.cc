#include "attention/sm90/prefill/prefill.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "attention/sm90/multiprocessors.h"
#include "attention/sm90/prefill/instantiations.h"
#include "attention/sm90/prefill/prepare.cuh"
#include "attention/sm90/prefill/tile.h"
#include "attention/sm90/status.h"
#include "attention/sm90/tensor_maps.h"
#include "core/cuda/check.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using namespace sm90;

constexpr float kLog2e = 1.4426950408889634F;
constexpr size_t kHeaderBytes = 256;

PrefillLauncher find_launcher(const AttentionParams& p) {
  const bool skip = p.lambda_kind != Lambda::Kind::none;
  for (const PrefillInstantiation& candidate : kPrefillInstantiations)
    if (candidate.dtype == p.q_dtype && candidate.head_size == p.d && candidate.skip == skip) return candidate.launch;
  throw Unsupported(fmt::format("query has dtype {} and head size {}, but the Hopper prefill kernels have none for it",
                                dtype_name(p.q_dtype), p.d));
}

void set_lengths(const AttentionParams& a, PrefillKernelParams& p) {
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
  // As few copies as possible, but at least one for each of a cluster's two blocks: a tile has a copy for each box and
  // 64 columns. Half as many copies made the skipping kernel up to 6 % faster.
  const int largest_box = a.d > 64 ? kSm90TileKeys : kSm90TileKeys / 2;
  const int box_keys = std::gcd(a.page_size > 0 ? a.page_size : kSm90TileKeys, largest_box);
  p.box_shift = std::countr_zero(static_cast<unsigned>(box_keys));
  p.ranks = a.group % 2 == 0 ? 2 : 1;
}

void set_rule(const AttentionParams& a, PrefillKernelParams& p) {
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

void set_results(const AttentionParams& a, PrefillKernelParams& p) {
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
  auto* workspace = static_cast<char*>(a.workspace);
  p.header = reinterpret_cast<PlanHeader*>(workspace);
  p.plan = reinterpret_cast<RequestPlan*>(workspace + kHeaderBytes);
  p.group_base = reinterpret_cast<int32_t*>(p.plan + a.batch);
}

}  // namespace

size_t sm90_prefill_workspace_bytes(const AttentionParams& p) {
  return kHeaderBytes + static_cast<size_t>(p.batch) * (sizeof(RequestPlan) + sizeof(int32_t));
}

void sm90_prefill(const AttentionParams& a) {
  if (a.batch == 0 || a.total_q == 0) return;
  const PrefillLauncher launch = find_launcher(a);
  PrefillKernelParams p{};
  set_lengths(a, p);
  set_rule(a, p);
  set_results(a, p);
  p.q = query_map(a, kSm90TileRows);
  p.k = key_map(a, 1 << p.box_shift);
  p.v = value_map(a, 1 << p.box_shift);
  p.clusters = std::max(1, usable_multiprocessors() / p.ranks);
  const auto stream = static_cast<cudaStream_t>(a.stream);
  // After everything that may refuse the call: what is refused has changed nothing.
  if (a.skip_mask != nullptr)
    check_cuda(cudaMemsetAsync(a.skip_mask, 0, static_cast<size_t>(a.heads_q * a.mask_groups * a.mask_blocks), stream),
               "cudaMemsetAsync");
  check_cuda(launch_prepare(p, stream), "the launch of the kernel that lays out prefill");
  check_cuda(launch(p, stream), "the launch of the prefill kernel");
}

}  // namespace longhaul
