#include <algorithm>
#include <atomic>

#include "attention/cpu/begin_results.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/run.h"
#include "attention/cpu/workspace.h"
#include "core/thread_pool.h"

namespace longhaul {
namespace {

/// Where a request's query rows fall among the absolute positions that one item covers.
struct ItemBlocks {
  int64_t first = 0, count = 0;
};

ItemBlocks item_blocks(const AttentionParams& p, int request, int64_t positions) {
  const int64_t q_length = p.q_length(request), kv_length = p.kv_length(request);
  if (q_length == 0) return {};
  const int64_t first = floor_div(kv_length - q_length, positions);
  return {first, floor_div(kv_length - 1, positions) - first + 1};
}

struct PrefillWorkspace {
  int64_t* first_item;  // [batch + 1]
  char* scratch;        // [threads][scratch_bytes]
  size_t scratch_bytes;
  size_t bytes;
};

PrefillWorkspace plan_workspace(const AttentionParams& p, const CpuKernels& kernels) {
  WorkspaceCutter cutter(p.workspace);
  PrefillWorkspace w{};
  w.first_item = cutter.take<int64_t>(p.batch + 1);
  w.scratch_bytes =
      (kernels.prefill_scratch_bytes(p) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  w.scratch = cutter.take<char>(w.scratch_bytes * p.threads);
  w.bytes = cutter.bytes();
  return w;
}

/// Items of a request run newest rows first: under a causal mask those are the longest.
PrefillItem item_at(const AttentionParams& p, const PrefillWorkspace& w, int64_t index, int64_t positions) {
  const int64_t* begin = w.first_item;
  const int request = static_cast<int>(std::upper_bound(begin, begin + p.batch + 1, index) - begin) - 1;
  const int64_t in_request = index - w.first_item[request];
  const ItemBlocks blocks = item_blocks(p, request, positions);
  const int64_t block = blocks.first + blocks.count - 1 - in_request / p.heads_kv;
  const int64_t q_length = p.q_length(request), offset = p.kv_length(request) - q_length;
  return {request, static_cast<int>(in_request % p.heads_kv), std::max<int64_t>(0, block * positions - offset),
          std::min(q_length, (block + 1) * positions - offset)};
}

}  // namespace

size_t cpu_prefill_workspace_bytes(const AttentionParams& p) {
  return plan_workspace(p, cpu_kernels(selected_isa())).bytes;
}

void cpu_prefill(const AttentionParams& p) {
  const CpuKernels& kernels = cpu_kernels(selected_isa());
  const PrefillWorkspace w = plan_workspace(p, kernels);
  const int64_t positions = kernels.prefill_positions(p);
  w.first_item[0] = 0;
  for (int b = 0; b < p.batch; ++b) {
    w.first_item[b + 1] = w.first_item[b] + item_blocks(p, b, positions).count * p.heads_kv;
  }
  const int64_t items = w.first_item[p.batch];
  const int threads = static_cast<int>(std::clamp<int64_t>(items, 1, p.threads));
  begin_results(p, threads);
  if (items == 0) return;
  std::atomic<int64_t> next{0};
  run_on_workers(threads, [&](int worker) {
    for (int64_t i = next.fetch_add(1); i < items; i = next.fetch_add(1)) {
      kernels.prefill_item(p, item_at(p, w, i, positions), w.scratch + worker * w.scratch_bytes);
    }
  });
}

}  // namespace longhaul
