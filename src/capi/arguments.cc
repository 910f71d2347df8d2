#include "capi/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "capi/status.h"
#include "longhaul/error.h"

namespace longhaul::capi {
namespace {

static_assert(LH_MAX_RANK == TensorView::kMaxRank);
static_assert(LH_FLOAT32 == static_cast<int>(DType::f32) && LH_FLOAT16 == static_cast<int>(DType::f16));
static_assert(LH_BFLOAT16 == static_cast<int>(DType::bf16) && LH_FLOAT8_E4M3 == static_cast<int>(DType::f8e4m3));
static_assert(LH_INT32 == static_cast<int>(DType::i32) && LH_INT64 == static_cast<int>(DType::i64));
static_assert(LH_UINT8 == static_cast<int>(DType::u8));
static_assert(LH_CPU == static_cast<int>(Device::cpu) && LH_CUDA == static_cast<int>(Device::cuda));
static_assert(LH_PREFILL == static_cast<int>(Phase::prefill) && LH_DECODE == static_cast<int>(Phase::decode));
static_assert(LH_RULE_MAX == static_cast<int>(SkipRule::max) && LH_RULE_SUM == static_cast<int>(SkipRule::sum));
static_assert(LH_LAMBDA_NONE == static_cast<int>(Lambda::Kind::none));
static_assert(LH_LAMBDA_SCALAR == static_cast<int>(Lambda::Kind::scalar));
static_assert(LH_LAMBDA_PER_HEAD == static_cast<int>(Lambda::Kind::per_head));

}  // namespace

// Far beyond any version's; more is memory that was never initialised.
constexpr size_t kLargestStruct = 1 << 16;

void check_init_size(const char* type, size_t struct_size, size_t oldest) {
  if (struct_size < oldest || struct_size > kLargestStruct) {
    throw InvalidArgument(fmt::format("struct_size is {}, but it must be sizeof({}), from {} to {}", struct_size, type,
                                      oldest, kLargestStruct));
  }
}

void check_struct(const void* object, const char* name, size_t struct_size, size_t oldest, size_t known) {
  if (struct_size < oldest) {
    throw InvalidArgument(fmt::format("{}->struct_size is {}, but it must be at least {}: call the init function first",
                                      name, struct_size, oldest));
  }
  if (struct_size > kLargestStruct) {
    throw InvalidArgument(fmt::format("{}->struct_size is {}, but it must be at most {}: call the init function first",
                                      name, struct_size, kLargestStruct));
  }
  const auto* bytes = static_cast<const unsigned char*>(object);
  if (struct_size > known && std::any_of(bytes + known, bytes + struct_size, [](unsigned char b) { return b != 0; })) {
    throw Unsupported(fmt::format("{} uses fields beyond its first {} bytes, which library version {} does not know",
                                  name, known, LONGHAUL_VERSION));
  }
}

void check_enum(int32_t value, int32_t largest, const char* name) {
  if (value < 0 || value > largest) {
    throw InvalidArgument(fmt::format("{} is {}, but allowed are 0 to {}", name, value, largest));
  }
}

bool to_bool(int32_t value, const char* name) {
  check_enum(value, 1, name);
  return value == 1;
}

Phase to_phase(int32_t phase) {
  check_enum(phase, LH_DECODE, "phase");
  return static_cast<Phase>(phase);
}

TensorView to_view(const lh_tensor& tensor, const char* name) {
  if (tensor.reserved != 0) {
    throw InvalidArgument(fmt::format("{}.reserved is {}, but it must be 0", name, tensor.reserved));
  }
  if (tensor.rank == 0 && tensor.data != nullptr) {
    throw InvalidArgument(
        fmt::format("{}.rank is 0, but {}.data is not NULL; a tensor that is not given is all 0", name, name));
  }
  TensorView view;
  view.data = tensor.data;
  view.dtype = static_cast<DType>(tensor.dtype);
  view.device = static_cast<Device>(tensor.device);
  view.rank = tensor.rank;
  std::copy_n(tensor.shape, LH_MAX_RANK, view.shape.begin());
  std::copy_n(tensor.stride, LH_MAX_RANK, view.stride.begin());
  view.check(name);
  return view;
}

AttentionArgs to_args(const lh_attention_args* caller_args) {
  require_pointer(caller_args, "args");
  const lh_attention_args c = copy_struct(caller_args, "args", kOldestAttentionArgs);
  AttentionArgs args;
  args.query = to_view(c.query, "query");
  args.key = to_view(c.key, "key");
  args.value = to_view(c.value, "value");
  args.output = to_view(c.output, "output");
  args.lse = to_view(c.lse, "lse");
  args.cu_seqlens_q = to_view(c.cu_seqlens_q, "cu_seqlens_q");
  args.cu_seqlens_kv = to_view(c.cu_seqlens_kv, "cu_seqlens_kv");
  args.page_table = to_view(c.page_table, "page_table");
  args.kv_lengths = to_view(c.kv_lengths, "kv_lengths");
  args.softmax_scale = c.softmax_scale;
  args.causal = to_bool(c.causal, "causal");
  args.window_left = c.window_left;
  args.soft_cap = c.soft_cap;
  args.sinks = to_view(c.sinks, "sinks");
  args.query_scale = to_view(c.query_scale, "query_scale");
  args.key_scale = to_view(c.key_scale, "key_scale");
  args.value_scale = to_view(c.value_scale, "value_scale");
  check_enum(c.lambda_kind, LH_LAMBDA_PER_HEAD, "lambda_kind");
  args.lambda = {static_cast<Lambda::Kind>(c.lambda_kind), c.lambda_value, to_view(c.lambda_values, "lambda_values")};
  check_enum(c.rule, LH_RULE_SUM, "rule");
  args.rule = static_cast<SkipRule>(c.rule);
  args.counters = to_view(c.counters, "counters");
  args.skip_mask = to_view(c.skip_mask, "skip_mask");
  args.probe_lambdas = to_view(c.probe_lambdas, "probe_lambdas");
  args.probe_skipped = to_view(c.probe_skipped, "probe_skipped");
  args.batch_invariant = to_bool(c.batch_invariant, "batch_invariant");
  args.threads = c.threads;
  args.workspace = c.workspace;
  args.workspace_bytes = c.workspace_bytes;
  args.stream = c.stream;
  return args;
}

}  // namespace longhaul::capi
