#include "cli/cuda_inputs.h"

namespace longhaul::cli {
namespace {

// From the first element to the last.
size_t span_bytes(const TensorView& view) {
  if (view.size() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) last += (view.shape[i] - 1) * view.stride[i];
  return static_cast<size_t>(last + 1) * dtype_size(view.dtype);
}

}  // namespace

CudaInputs::CudaInputs(const AttentionArgs& host, int copies) : args_(host), copies_(copies) {
  args_.output = args_.lse = args_.counters = args_.skip_mask = args_.probe_lambdas = args_.probe_skipped = {};
  args_.threads = 0;
  args_.workspace = nullptr;
  args_.workspace_bytes = 0;
  key_step_ = take(args_.key, copies);
  value_step_ = take(args_.value, copies);
  for (TensorView* view :
       {&args_.query, &args_.cu_seqlens_q, &args_.cu_seqlens_kv, &args_.page_table, &args_.kv_lengths, &args_.sinks,
        &args_.query_scale, &args_.key_scale, &args_.value_scale, &args_.lambda.values})
    if (view->given()) take(*view, 1);
}

size_t CudaInputs::take(TensorView& view, int copies) {
  constexpr size_t kAlignment = 256;  // as cudaMalloc aligns the first copy
  const size_t bytes = span_bytes(view), step = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto count = static_cast<size_t>(copies);
  memory_.emplace_back(copies > 1 ? step * count : bytes);
  for (size_t i = 0; i < count; ++i) memory_.back().write(view.data, bytes, i * step);
  view.data = memory_.back().data();
  view.device = Device::cuda;
  return step;
}

void CudaInputs::use_copy(int copy, AttentionArgs& args) const {
  args.key.data = static_cast<std::byte*>(args_.key.data) + static_cast<size_t>(copy) * key_step_;
  args.value.data = static_cast<std::byte*>(args_.value.data) + static_cast<size_t>(copy) * value_step_;
}

}  // namespace longhaul::cli
