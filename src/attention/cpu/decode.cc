#include <algorithm>
#include <atomic>

#include "attention/cpu/begin_results.h"
#include "attention/cpu/item_heads.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/run.h"
#include "attention/cpu/workspace.h"
#include "core/thread_pool.h"

namespace longhaul {
namespace {

int splits_of(const AttentionParams& p, int request) {
  if (p.q_length(request) == 0) return 0;
  return decode_splits(p.kv_length(request), int64_t{p.batch} * p.heads_kv, p.batch_invariant);
}

bool any_split(const AttentionParams& p) {
  for (int b = 0; b < p.batch; ++b) {
    if (splits_of(p, b) > 1) return true;
  }
  return false;
}

/// Items that the heads of a request make, per part.
int head_groups(const AttentionParams& p) {
  const int heads = decode_item_heads(p);
  return (p.heads_kv + heads - 1) / heads;
}

/// Floats of one part's result.
int64_t partial_floats(const AttentionParams& p, int request) { return p.q_length(request) * p.group * (p.dv + 2); }

struct DecodeWorkspace {
  int32_t* order;          // [batch], longest request first, so that the last items are short
  int64_t* first_item;     // [batch + 1], by place in `order`
  int64_t* first_partial;  // [batch], by request, in floats
  float* partials;
  char* scratch;  // [threads][scratch_bytes]
  size_t scratch_bytes;
  size_t bytes;
};

DecodeWorkspace plan_workspace(const AttentionParams& p, const CpuKernels& kernels) {
  int64_t partials = 0;
  for (int b = 0; b < p.batch; ++b) {
    const int splits = splits_of(p, b);
    if (splits > 1) partials += splits * p.heads_kv * partial_floats(p, b);
  }
  WorkspaceCutter cutter(p.workspace);
  DecodeWorkspace w{};
  w.order = cutter.take<int32_t>(p.batch);
  w.first_item = cutter.take<int64_t>(p.batch + 1);
  w.first_partial = cutter.take<int64_t>(p.batch);
  w.partials = cutter.take<float>(partials);
  w.scratch_bytes =
      (kernels.decode_scratch_bytes(p) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  w.scratch = cutter.take<char>(w.scratch_bytes * p.threads);
  w.bytes = cutter.bytes();
  return w;
}

void order_requests(const AttentionParams& p, const DecodeWorkspace& w) {
  for (int b = 0; b < p.batch; ++b) w.order[b] = b;
  std::sort(w.order, w.order + p.batch,
            [&](int a, int b) { return p.kv_length(a) != p.kv_length(b) ? p.kv_length(a) > p.kv_length(b) : a < b; });
  w.first_item[0] = 0;
  for (int i = 0; i < p.batch; ++i)
    w.first_item[i + 1] = w.first_item[i] + int64_t{splits_of(p, w.order[i])} * head_groups(p);
  int64_t partial = 0;
  for (int b = 0; b < p.batch; ++b) {
    w.first_partial[b] = partial;
    const int splits = splits_of(p, b);
    if (splits > 1) partial += splits * p.heads_kv * partial_floats(p, b);
  }
}

float* partial_at(const AttentionParams& p, const DecodeWorkspace& w, int request, int head_kv, int part) {
  return w.partials + w.first_partial[request] +
         (int64_t{head_kv} * splits_of(p, request) + part) * partial_floats(p, request);
}

/// The keys that any query of the request sees.
KeyRange request_keys(const AttentionParams& p, int request) {
  const int64_t kv_length = p.kv_length(request);
  if (kv_length == 0) return {};
  const int64_t oldest_query = kv_length - p.q_length(request);
  const int64_t begin = p.window_left >= 0 ? std::max<int64_t>(0, oldest_query - p.window_left) : 0;
  return {begin, kv_length};
}

DecodeItem item_at(const AttentionParams& p, const DecodeWorkspace& w, int64_t index) {
  const int64_t* begin = w.first_item;
  const int64_t place = std::upper_bound(begin, begin + p.batch + 1, index) - begin - 1;
  const int request = w.order[place];
  const int splits = splits_of(p, request);
  const int64_t in_request = index - w.first_item[place];
  const int part = static_cast<int>(in_request % splits), heads = decode_item_heads(p);
  const int head_begin = static_cast<int>(in_request / splits) * heads;
  const KeyRange keys = request_keys(p, request);
  DecodeItem item{request, head_begin, std::min(head_begin + heads, p.heads_kv), decode_split(keys, splits, part), {},
                  nullptr, 0};
  if (splits > 1) {
    item.partial = partial_at(p, w, request, head_begin, part);
    item.partial_head = splits * partial_floats(p, request);
  }
  if (part > 0) {
    item.newest_tile = {std::max(keys.begin, (keys.end - 1) / kCpuDecode.tile_keys * kCpuDecode.tile_keys), keys.end};
  }
  return item;
}

}  // namespace

size_t cpu_decode_workspace_bytes(const AttentionParams& p) {
  return plan_workspace(p, cpu_kernels(selected_isa())).bytes;
}

void cpu_decode(const AttentionParams& p) {
  const CpuKernels& kernels = cpu_kernels(selected_isa());
  const DecodeWorkspace w = plan_workspace(p, kernels);
  order_requests(p, w);
  const int64_t items = w.first_item[p.batch];
  const int threads = static_cast<int>(std::clamp<int64_t>(items, 1, p.threads));
  begin_results(p, threads);
  if (items == 0) return;
  std::atomic<int64_t> next{0};
  run_on_workers(threads, [&](int worker) {
    for (int64_t i = next.fetch_add(1); i < items; i = next.fetch_add(1)) {
      kernels.decode_item(p, item_at(p, w, i), w.scratch + worker * w.scratch_bytes);
    }
  });
  if (!any_split(p)) return;
  // Merging waits for all parts: a fixed order of additions is what makes the bits independent of the threads.
  const int64_t merges = int64_t{p.batch} * p.heads_kv;
  next = 0;
  run_on_workers(static_cast<int>(std::min<int64_t>(threads, merges)), [&](int worker) {
    for (int64_t i = next.fetch_add(1); i < merges; i = next.fetch_add(1)) {
      const int request = static_cast<int>(i / p.heads_kv), head_kv = static_cast<int>(i % p.heads_kv);
      const int splits = splits_of(p, request);
      if (splits <= 1) continue;
      kernels.decode_merge(p, request, head_kv, partial_at(p, w, request, head_kv, 0), splits,
                           w.scratch + worker * w.scratch_bytes);
    }
  });
}

}  // namespace longhaul
