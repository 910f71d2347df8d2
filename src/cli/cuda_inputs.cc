#include "cli/cuda_inputs.h"

namespace longhaul::cli {
namespace {

size_t span_bytes(const TensorView& view) {
  if (view.size() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) last += (view.shape[i] - 1) * view.stride[i];
  return static_cast<size_t>(last + 1) * dtype_size(view.dtype);
}

}  // namespace

CudaInputs::CudaInputs(const AttentionArgs& host) : args_(host) {
  args_.output = args_.lse = args_.counters = args_.skip_mask = args_.probe_lambdas = args_.probe_skipped = {};
  args_.threads = 0;
  args_.workspace = nullptr;
  args_.workspace_bytes = 0;
  for (TensorView* view : {&args_.query, &args_.key, &args_.value, &args_.cu_seqlens_q, &args_.cu_seqlens_kv,
                           &args_.page_table, &args_.kv_lengths, &args_.sinks, &args_.query_scale, &args_.key_scale,
                           &args_.value_scale, &args_.lambda.values}) {
    if (!view->given()) continue;
    const size_t bytes = span_bytes(*view);
    memory_.emplace_back(bytes);
    memory_.back().write(view->data, bytes);
    view->data = memory_.back().data();
    view->device = Device::cuda;
  }
}

}  // namespace longhaul::cli
