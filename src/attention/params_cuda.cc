// What a CUDA device adds to the checks of a call, and takes away: its memory is never read here.
#include "attention/params_cuda.h"

#include <array>
#include <string>

#include "attention/argument_checks.h"

namespace longhaul {
namespace {

using namespace checks;

// Copies by the bulk tensor engine want both, and strides below 2^40 bytes.
constexpr int64_t kAlignment = 16;
constexpr int64_t kStrideBytes = int64_t{1} << 40;

struct Named {
  const char* name;
  const TensorView& view;
};

std::array<Named, 18> tensors_of(const AttentionArgs& a) {
  return {{{"query", a.query},
           {"key", a.key},
           {"value", a.value},
           {"output", a.output},
           {"lse", a.lse},
           {"cu_seqlens_q", a.cu_seqlens_q},
           {"cu_seqlens_kv", a.cu_seqlens_kv},
           {"page_table", a.page_table},
           {"kv_lengths", a.kv_lengths},
           {"sinks", a.sinks},
           {"query_scale", a.query_scale},
           {"key_scale", a.key_scale},
           {"value_scale", a.value_scale},
           {"lambda.values", a.lambda.values},
           {"counters", a.counters},
           {"skip_mask", a.skip_mask},
           {"probe_lambdas", a.probe_lambdas},
           {"probe_skipped", a.probe_skipped}}};
}

const char* place(Device device) { return device == Device::cuda ? "on a CUDA device" : "on the CPU"; }

void check_dtype(const TensorView& view, const char* name) {
  if (view.dtype != DType::bf16 && view.dtype != DType::f16)
    fail<Unsupported>("{} has dtype {}, but on a CUDA device supported are bfloat16 and float16", name,
                      dtype_name(view.dtype));
}

// A dimension of one element or none is never stepped over, so its stride is free.
void check_alignment(const TensorView& view, const char* name) {
  if (view.size() == 0) return;
  const auto size = static_cast<int64_t>(dtype_size(view.dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % kAlignment != 0)
    fail("{} is at address {}, but on a CUDA device it must be aligned to {} bytes", name, view.data, kAlignment);
  for (int i = 0; i + 1 < view.rank; ++i) {
    if (view.shape[i] <= 1) continue;
    if (view.stride[i] == 0)
      fail<Unsupported>("{} has stride 0 in dimension {}, but on a CUDA device its elements must lie apart", name, i);
    if (view.stride[i] * size % kAlignment != 0)
      fail("{} has stride {} in dimension {}, but on a CUDA device it must be a multiple of {} elements ({} bytes)",
           name, view.stride[i], i, kAlignment / size, kAlignment);
    if (view.stride[i] >= kStrideBytes / size)
      fail<Unsupported>("{} has stride {} in dimension {}, but on a CUDA device strides of less than {} are supported",
                        name, view.stride[i], i, kStrideBytes / size);
  }
}

// The stride of a dimension of one element as if the tensor were row-major, so that kernels need no case for it.
void settle(const TensorView& view, int dim, int64_t& stride) {
  if (view.shape[dim] > 1) return;
  stride = 1;
  for (int i = dim + 1; i < view.rank; ++i) stride *= std::max<int64_t>(view.shape[i], 1);
}

void settle_strides(const AttentionArgs& args, AttentionParams& p) {
  settle(args.query, 0, p.q_token);
  settle(args.query, 1, p.q_head);
  const int last = args.key.rank - 1;
  settle(args.key, last - 1, p.k_head);
  settle(args.key, last - 2, p.k_token);
  settle(args.value, last - 1, p.v_head);
  settle(args.value, last - 2, p.v_token);
  if (p.page_size == 0) return;
  settle(args.key, 0, p.k_page);
  settle(args.value, 0, p.v_page);
}

}  // namespace

void check_one_device(const AttentionArgs& args) {
  for (const auto& [name, view] : tensors_of(args)) {
    if (!view.given()) continue;
    view.check(name);
    if (view.device != args.query.device)
      fail("{} is {} {}, but query is {}, and all tensors of a call must be on one device", name, view.describe(),
           place(view.device), place(args.query.device));
  }
}

void check_cuda_inputs(const AttentionArgs& args, AttentionParams& p) {
  check_dtype(args.query, "query");
  check_dtype(args.key, "key");
  if (p.d != 64 && p.d != 128)
    fail<Unsupported>("query has head size {}, but on a CUDA device supported are 64 and 128", p.d);
  check_alignment(args.query, "query");
  check_alignment(args.key, "key");
  check_alignment(args.value, "value");
  settle_strides(args, p);
}

void check_cuda_results(const AttentionArgs& args) {
  check_alignment(args.output, "output");
  if (args.probe_lambdas.given() || args.probe_skipped.given())
    fail<Unsupported>("{} is given, but on a CUDA device no kernel probes lambdas in this version",
                      args.probe_lambdas.given() ? "probe_lambdas" : "probe_skipped");
  if (args.threads != 0)
    fail("threads is {}, but query is on a CUDA device, where it must be 0 (no choice)", args.threads);
}

void require_cpu(const AttentionParams& p, const char* reader) {
  if (p.device != Device::cpu)
    fail<Unsupported>("query is on a CUDA device, but {} reads CPU tensors only: copy them first", reader);
}

}  // namespace longhaul
