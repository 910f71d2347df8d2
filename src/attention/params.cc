#include "attention/params.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "attention/argument_checks.h"
#include "attention/mask_layout.h"
#include "attention/overlap.h"
#include "attention/params_cuda.h"
#include "attention/tile_plan.h"
#include "core/environment.h"
#include "core/thread_pool.h"

namespace longhaul {
namespace {

using namespace checks;

void read_results(const AttentionArgs& args, AttentionParams& p) {
  const TensorView& out = args.output;
  check_required(out, "output");
  const bool dtype_fits = p.q_dtype == DType::f8e4m3 ? is_wide_float(out.dtype) : out.dtype == p.q_dtype;
  if (!dtype_fits)
    fail("output has dtype {}, but beside a query of {} it must be {}", dtype_name(out.dtype), dtype_name(p.q_dtype),
         p.q_dtype == DType::f8e4m3 ? "float32, float16 or bfloat16" : dtype_name(p.q_dtype));
  if (!has_shape(out, out.dtype, {p.total_q, p.heads_q, p.dv}))
    fail("output is {}, but its shape must be [{}, {}, {}]", out.describe(), p.total_q, p.heads_q, p.dv);
  check_last_contiguous(out, "output");
  check_no_alias(out, "output");
  p.out_dtype = out.dtype;
  p.out = out.data;
  p.out_token = out.stride[0];
  p.out_head = out.stride[1];
  if (!args.lse.given()) return;
  args.lse.check("lse");
  if (!has_shape(args.lse, DType::f32, {p.heads_q, p.total_q}))
    fail("lse is {}, but it must be float32[{}, {}]", args.lse.describe(), p.heads_q, p.total_q);
  check_no_alias(args.lse, "lse");
  p.lse = static_cast<float*>(args.lse.data);
  p.lse_head = args.lse.stride[0];
  p.lse_token = args.lse.stride[1];
}

void read_probes(const AttentionArgs& args, int64_t voting_heads, AttentionParams& p) {
  const TensorView &lambdas = args.probe_lambdas, &skipped = args.probe_skipped;
  if (!lambdas.given()) return refuse_given(skipped, "probe_skipped", "probe_lambdas is not given");
  lambdas.check("probe_lambdas");
  check_required(skipped, "probe_skipped");
  if (lambdas.dtype != DType::f32 || lambdas.rank != 1 || lambdas.shape[0] < 1 || lambdas.shape[0] > kMaxProbes)
    fail("probe_lambdas is {}, but it must be float32[n] with n from 1 to {}", lambdas.describe(), kMaxProbes);
  check_contiguous(lambdas, "probe_lambdas");
  if (p.lambda_kind != Lambda::Kind::none)
    fail("probe_lambdas is given ({}), but it needs lambda none: probing computes the dense result",
         lambdas.describe());
  const int64_t n = lambdas.shape[0];
  const auto* values = static_cast<const float*>(lambdas.data);
  for (int64_t i = 0; i < n; ++i)
    if (!(values[i] > (i > 0 ? values[i - 1] : 0.0F) && values[i] <= 1))
      fail("probe_lambdas[{}] is {}, but the values must ascend within (0, 1]", i, values[i]);
  if (!has_shape(skipped, DType::i64, {voting_heads, n}))
    fail("probe_skipped is {}, but it must be int64[{}, {}]", skipped.describe(), voting_heads, n);
  check_contiguous(skipped, "probe_skipped");
  p.probes = static_cast<int32_t>(n);
  p.probe_lambdas = values;
  p.probe_skipped = static_cast<int64_t*>(skipped.data);
}

// The mask's shape: on the CPU what the lengths need, on a CUDA device what the caller made of them.
SkipMaskShape mask_bounds(const AttentionArgs& args, Phase phase, const AttentionParams& p) {
  const TensorView& mask = args.skip_mask;
  if (p.device == Device::cuda) {
    const int64_t voting_heads = phase == Phase::decode ? p.heads_kv : p.heads_q;
    if (mask.dtype != DType::u8 || mask.rank != 3 || mask.shape[0] != voting_heads)
      fail("skip_mask is {}, but it must be uint8[{}, groups, blocks]", mask.describe(), voting_heads);
    return {voting_heads, mask.shape[1], mask.shape[2]};
  }
  const SkipMaskShape shape = mask_shape(p, phase, phase == Phase::decode ? kCpuDecode : kCpuPrefill);
  if (!has_shape(mask, DType::u8, {shape.voting_heads, shape.groups, shape.blocks}))
    fail("skip_mask is {}, but it must be uint8[{}, {}, {}]", mask.describe(), shape.voting_heads, shape.groups,
         shape.blocks);
  return shape;
}

void read_reports(const AttentionArgs& args, Phase phase, AttentionParams& p) {
  const int64_t voting_heads = phase == Phase::decode ? p.heads_kv : p.heads_q;
  if (args.counters.given()) {
    args.counters.check("counters");
    if (!has_shape(args.counters, DType::i64, {voting_heads, 4}))
      fail("counters is {}, but it must be int64[{}, 4]", args.counters.describe(), voting_heads);
    check_no_alias(args.counters, "counters");
    p.counters = static_cast<int64_t*>(args.counters.data);
    p.counters_head = args.counters.stride[0];
    p.counters_kind = args.counters.stride[1];
  }
  read_probes(args, voting_heads, p);
  if (!args.skip_mask.given()) return;
  args.skip_mask.check("skip_mask");
  const SkipMaskShape shape = mask_bounds(args, phase, p);
  check_contiguous(args.skip_mask, "skip_mask");
  p.skip_mask = static_cast<uint8_t*>(args.skip_mask.data);
  p.mask_heads = shape.voting_heads;
  p.mask_groups = shape.groups;
  p.mask_blocks = shape.blocks;
}

void read_execution(const AttentionArgs& args, AttentionParams& p) {
  if (args.threads < 0 || args.threads > kMaxThreads)
    fail("threads is {}, but it must be from 1 to {}, or 0 for the default", args.threads, kMaxThreads);
  if (p.device == Device::cpu) {
    if (args.stream != nullptr) fail("stream is {}, but the tensors are on the CPU, so it must be null", args.stream);
    p.threads = args.threads == 0 ? default_threads() : args.threads;
  }
  p.stream = args.stream;
  p.workspace = args.workspace;
}

// While a result is written, other threads read the inputs and write the other results.
void check_results_apart(const AttentionArgs& args, const AttentionParams& p) {
  TensorView workspace;
  constexpr size_t kMost = size_t{1} << 47;  // no address space of a process is larger; sums of addresses stay in range
  if (const size_t bytes = std::min(args.workspace_bytes, kMost); args.workspace != nullptr && bytes > 0)
    workspace = TensorView(args.workspace, DType::u8, {static_cast<int64_t>(bytes)}, p.device);
  using Named = std::pair<const char*, const TensorView*>;
  const Named views[] = {{"output", &args.output},
                         {"lse", &args.lse},
                         {"counters", &args.counters},
                         {"skip_mask", &args.skip_mask},
                         {"probe_skipped", &args.probe_skipped},
                         {"workspace", &workspace},
                         {"query", &args.query},
                         {"key", &args.key},
                         {"value", &args.value},
                         {"cu_seqlens_q", &args.cu_seqlens_q},
                         {"cu_seqlens_kv", &args.cu_seqlens_kv},
                         {"page_table", &args.page_table},
                         {"kv_lengths", &args.kv_lengths},
                         {"sinks", &args.sinks},
                         {"query_scale", &args.query_scale},
                         {"key_scale", &args.key_scale},
                         {"value_scale", &args.value_scale},
                         {"lambda.values", &args.lambda.values},
                         {"probe_lambdas", &args.probe_lambdas}};
  constexpr size_t kResults = 6;
  for (size_t i = 0; i < kResults; ++i)
    for (size_t j = i + 1; j < std::size(views); ++j)
      if (views[i].second->given() && views[j].second->given() && overlap(*views[i].second, *views[j].second))
        fail("{} at {} overlaps {} at {}, but results need memory of their own", views[i].first, views[i].second->data,
             views[j].first, views[j].second->data);
}

}  // namespace

AttentionParams make_params(const AttentionArgs& args, Phase phase) {
  AttentionParams p = make_input_params(args, phase);
  read_results(args, p);
  if (p.device == Device::cuda) check_cuda_results(args);
  read_reports(args, phase, p);
  read_execution(args, p);
  check_results_apart(args, p);
  return p;
}

}  // namespace longhaul
