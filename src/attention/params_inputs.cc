#include <cmath>
#include <limits>

#include "attention/argument_checks.h"
#include "attention/params.h"
#include "attention/params_cuda.h"

namespace longhaul {
namespace {

using namespace checks;

constexpr int64_t kMaxPosition = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxHeads = 1 << 16;  // so that rows, which are heads times query tokens, fit an int in decode
constexpr int kMaxDecodeQueries = 16;

void read_query(const AttentionArgs& args, AttentionParams& p) {
  const TensorView& q = args.query;
  if (q.rank != 3) fail("query is {}, but it must be [total_q, heads_q, d]", q.describe());
  if (!is_wide_float(q.dtype) && q.dtype != DType::f8e4m3)
    fail<Unsupported>("query has dtype {}, but supported are float32, float16, bfloat16 and float8_e4m3",
                      dtype_name(q.dtype));
  check_last_contiguous(q, "query");
  if (q.shape[0] > kMaxPosition) fail("query has {} tokens, but at most {} are supported", q.shape[0], kMaxPosition);
  if (q.shape[1] < 1 || q.shape[1] > kMaxHeads)
    fail("query has {} heads, but there must be 1 to {}", q.shape[1], kMaxHeads);
  const int64_t d = q.shape[2];
  if (d != 64 && d != 128 && d != 192 && d != 256)
    fail<Unsupported>("query has head size {}, but supported are 64, 128, 192 (values 128) and 256", d);
  p.total_q = q.shape[0];
  p.heads_q = static_cast<int32_t>(q.shape[1]);
  p.d = static_cast<int32_t>(d);
  p.q_dtype = q.dtype;
  p.q = q.data;
  p.q_token = q.stride[0];
  p.q_head = q.stride[1];
}

void check_key_shape(const TensorView& key, const AttentionParams& p) {
  if (key.rank != 3 && key.rank != 4)
    fail("key is {}, but it must be [total_kv, heads_kv, d] or [pages, page_size, heads_kv, d]", key.describe());
  const bool fits = key.dtype == p.q_dtype || (key.dtype == DType::f8e4m3 && is_wide_float(p.q_dtype));
  if (!fits)
    fail<Unsupported>(
        "key has dtype {}, but beside a query of {} it must be {}", dtype_name(key.dtype), dtype_name(p.q_dtype),
        p.q_dtype == DType::f8e4m3 ? "float8_e4m3" : fmt::format("{} or float8_e4m3", dtype_name(p.q_dtype)));
  const int64_t heads = key.shape[key.rank - 2], d = key.shape[key.rank - 1];
  if (heads <= 0 || p.heads_q % heads != 0)
    fail("key has {} heads, but their number must divide the {} heads of query", heads, p.heads_q);
  if (d != p.d) fail("key has head size {}, but query has {}", d, p.d);
  if (key.shape[0] > kMaxPosition)
    fail("key has {} {}, but at most {} are supported", key.shape[0], key.rank == 4 ? "pages" : "tokens", kMaxPosition);
  if (key.rank == 4 && (key.shape[1] < 16 || key.shape[1] > 256 || key.shape[1] % 16 != 0))
    fail<Unsupported>("key has page size {}, but supported are multiples of 16 from 16 to 256", key.shape[1]);
}

void read_keys(const AttentionArgs& args, AttentionParams& p) {
  const TensorView &key = args.key, &value = args.value;
  check_required(key, "key");
  check_required(value, "value");
  check_key_shape(key, p);
  check_last_contiguous(key, "key");
  check_last_contiguous(value, "value");
  const int last = key.rank - 1;
  if (value.rank != key.rank || !std::equal(key.shape.begin(), key.shape.begin() + last, value.shape.begin()))
    fail("value is {}, but all its dimensions except the last must be those of key, {}", value.describe(),
         key.describe());
  if (value.dtype != key.dtype)
    fail("value has dtype {}, but it must be that of key, {}", dtype_name(value.dtype), dtype_name(key.dtype));
  const int64_t dv = value.shape[last];
  if (dv != (p.d == 192 ? 128 : p.d))
    fail<Unsupported>("value has head size {}, but beside keys of head size {} supported is {}", dv, p.d,
                      p.d == 192 ? 128 : p.d);
  p.kv_dtype = key.dtype;
  p.heads_kv = static_cast<int32_t>(key.shape[last - 1]);
  p.group = p.heads_q / p.heads_kv;
  p.dv = static_cast<int32_t>(dv);
  p.k = key.data;
  p.v = value.data;
  p.k_head = key.stride[last - 1];
  p.v_head = value.stride[last - 1];
  p.k_token = key.stride[last - 2];
  p.kv_rows = key.shape[0];
  p.v_token = value.stride[last - 2];
  if (key.rank == 4) {
    p.page_size = static_cast<int32_t>(key.shape[1]);
    p.k_page = key.stride[0];
    p.v_page = value.stride[0];
  }
}

// int32 [batch + 1] from 0 to total, not decreasing, which only the CPU can see here.
const int32_t* read_cumulative(const TensorView& view, const char* name, int64_t entries, int64_t total,
                               const char* of) {
  check_required(view, name);
  if (view.dtype != DType::i32 || view.rank != 1 || view.shape[0] < 1)
    fail("{} is {}, but it must be int32[batch + 1]", name, view.describe());
  if (entries >= 0 && view.shape[0] != entries)
    fail("{} has {} entries, but cu_seqlens_q has {}", name, view.shape[0], entries);
  check_contiguous(view, name);
  const auto* data = static_cast<const int32_t*>(view.data);
  const int64_t last = view.shape[0] - 1;
  if (last == 0 && total != 0) fail("{} has one entry, which leaves out the {} tokens of {}", name, total, of);
  if (view.device == Device::cuda) return data;
  if (data[0] != 0) fail("{}[0] is {}, but it must be 0", name, data[0]);
  for (int64_t i = 0; i < last; ++i)
    if (data[i + 1] < data[i])
      fail("{}[{}] is {}, but it must not be below the entry before, {}", name, i + 1, data[i + 1], data[i]);
  if (data[last] != total) fail("{}[{}] is {}, but it must be the {} tokens of {}", name, last, data[last], total, of);
  return data;
}

void read_pages(const AttentionArgs& args, AttentionParams& p) {
  const TensorView &table = args.page_table, &lengths = args.kv_lengths;
  refuse_given(args.cu_seqlens_kv, "cu_seqlens_kv", "key is paged, so page_table and kv_lengths describe the requests");
  check_required(table, "page_table");
  check_required(lengths, "kv_lengths");
  if (table.dtype != DType::i32 || table.rank != 2 || table.shape[0] != p.batch)
    fail("page_table is {}, but it must be int32[{}, max_pages]", table.describe(), p.batch);
  if (!has_shape(lengths, DType::i32, {p.batch}))
    fail("kv_lengths is {}, but it must be int32[{}]", lengths.describe(), p.batch);
  check_last_contiguous(table, "page_table");
  if (table.shape[1] > kMaxPosition)
    fail("page_table is {}, but at most {} pages a request are supported", table.describe(), kMaxPosition);
  check_contiguous(lengths, "kv_lengths");
  p.page_table = static_cast<const int32_t*>(table.data);
  p.page_table_request = table.stride[0];
  p.max_pages = static_cast<int32_t>(table.shape[1]);
  p.kv_lengths = static_cast<const int32_t*>(lengths.data);
  if (p.device == Device::cuda) return;
  const int64_t room = table.shape[1] * p.page_size, pages = args.key.shape[0];
  for (int b = 0; b < p.batch; ++b) {
    const int64_t length = p.kv_lengths[b];
    if (length < 0 || length > room)
      fail("kv_lengths[{}] is {}, but it must be from 0 to the {} tokens that a row of page_table holds", b, length,
           room);
    for (int64_t i = 0; i * p.page_size < length; ++i) {
      const int32_t page = p.page_table[b * p.page_table_request + i];
      if (page < 0 || page >= pages) fail("page_table[{}, {}] is {}, but key has {} pages", b, i, page, pages);
    }
  }
}

void read_lengths(const AttentionArgs& args, Phase phase, AttentionParams& p) {
  p.cu_q = read_cumulative(args.cu_seqlens_q, "cu_seqlens_q", -1, p.total_q, "query");
  if (args.cu_seqlens_q.shape[0] - 1 > kMaxPosition)
    fail("cu_seqlens_q has {} entries, but at most {} requests are supported", args.cu_seqlens_q.shape[0],
         kMaxPosition);
  p.batch = static_cast<int32_t>(args.cu_seqlens_q.shape[0] - 1);
  if (p.page_size > 0) {
    read_pages(args, p);
  } else {
    refuse_given(args.page_table, "page_table", "key is ragged (rank 3), so cu_seqlens_kv describes the requests");
    refuse_given(args.kv_lengths, "kv_lengths", "key is ragged (rank 3), so cu_seqlens_kv describes the requests");
    p.cu_kv = read_cumulative(args.cu_seqlens_kv, "cu_seqlens_kv", p.batch + 1, args.key.shape[0], "key");
  }
  if (phase != Phase::decode || p.device == Device::cuda) return;
  for (int b = 0; b < p.batch; ++b)
    if (p.q_length(b) > kMaxDecodeQueries)
      fail("cu_seqlens_q gives request {} {} query tokens, but decode takes at most {} (prefill takes any number)", b,
           p.q_length(b), kMaxDecodeQueries);
}

void read_mask_options(const AttentionArgs& args, AttentionParams& p) {
  const float scale = args.softmax_scale;
  if (!std::isfinite(scale) || scale < 0)
    fail("softmax_scale is {}, but it must be finite and positive, or 0 for 1/sqrt(d)", scale);
  if (!std::isfinite(args.soft_cap) || args.soft_cap < 0)
    fail("soft_cap is {}, but it must be finite and positive, or 0 for none", args.soft_cap);
  if (args.window_left < -1) fail("window_left is {}, but it must be at least 0, or -1 for none", args.window_left);
  p.scale = scale == 0 ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.d))) : scale;
  p.soft_cap = args.soft_cap;
  p.causal = args.causal;
  // No two positions are further apart, and kernels may subtract the window from a position without overflow.
  p.window_left = args.window_left > 2 * kMaxPosition ? -1 : args.window_left;
  if (!args.sinks.given()) return;
  args.sinks.check("sinks");
  if (!has_shape(args.sinks, DType::f32, {p.heads_q}))
    fail("sinks is {}, but it must be float32[{}]", args.sinks.describe(), p.heads_q);
  check_contiguous(args.sinks, "sinks");
  p.sinks = static_cast<const float*>(args.sinks.data);
  if (p.device == Device::cuda) return;
  for (int h = 0; h < p.heads_q; ++h)
    if (!(p.sinks[h] < std::numeric_limits<float>::infinity()))
      fail("sinks[{}] is {}, but it must be finite or -inf", h, p.sinks[h]);
}

void read_scale(const TensorView& view, const char* name, const char* of, DType dtype, int heads, const float*& data,
                int64_t& stride) {
  if (!view.given()) return;
  view.check(name);
  if (dtype != DType::f8e4m3)
    fail("{} is given, but {} has dtype {} and only float8_e4m3 takes a scale", name, of, dtype_name(dtype));
  if (!has_shape(view, DType::f32, {1}) && !has_shape(view, DType::f32, {heads}))
    fail("{} is {}, but it must be float32[1] or float32[{}]", name, view.describe(), heads);
  data = static_cast<const float*>(view.data);
  stride = view.shape[0] == 1 ? 0 : view.stride[0];
  for (int64_t h = 0; h < view.shape[0]; ++h)
    if (!std::isfinite(data[h * stride]) || data[h * stride] <= 0)
      fail("{}[{}] is {}, but it must be finite and positive", name, h, data[h * stride]);
}

void read_lambda(const AttentionArgs& args, AttentionParams& p) {
  const Lambda& lambda = args.lambda;
  const auto valid = [](float value) { return value >= 0 && value <= 1; };  // false for NaN
  if (args.rule != SkipRule::max && args.rule != SkipRule::sum)
    fail("rule is {}, but it must be 0 (max) or 1 (sum)", static_cast<int>(args.rule));
  p.rule = args.rule;
  p.lambda_kind = lambda.kind;
  switch (lambda.kind) {
    case Lambda::Kind::none:
      if (lambda.value != 0) fail("lambda.value is {}, but lambda.kind is none, so it must be 0", lambda.value);
      break;
    case Lambda::Kind::scalar:
      if (!valid(lambda.value)) fail("lambda is {}, but it must be from 0 to 1", lambda.value);
      p.lambda = lambda.value;
      break;
    case Lambda::Kind::per_head:
      check_required(lambda.values, "lambda.values");
      if (!has_shape(lambda.values, DType::f32, {p.batch, p.heads_q}))
        fail("lambda.values is {}, but it must be float32[{}, {}]", lambda.values.describe(), p.batch, p.heads_q);
      p.lambdas = static_cast<const float*>(lambda.values.data);
      p.lambda_request = lambda.values.stride[0];
      p.lambda_head = lambda.values.stride[1];
      if (p.device == Device::cuda) return;
      for (int b = 0; b < p.batch; ++b)
        for (int h = 0; h < p.heads_q; ++h)
          if (!valid(p.lambda_of(b, h)))
            fail("lambda.values of request {}, head {} is {}, but it must be from 0 to 1", b, h, p.lambda_of(b, h));
      return;
    default:
      fail("lambda.kind is {}, but it must be 0 (none), 1 (scalar) or 2 (per head)", static_cast<int>(lambda.kind));
  }
  refuse_given(lambda.values, "lambda.values", "lambda.kind is not per_head");
}

}  // namespace

AttentionParams make_input_params(const AttentionArgs& args, Phase phase) {
  if (phase != Phase::prefill && phase != Phase::decode)
    fail("phase is {}, but it must be 0 (prefill) or 1 (decode)", static_cast<int>(phase));
  check_required(args.query, "query");
  check_one_device(args);
  AttentionParams p;
  p.device = args.query.device;
  read_query(args, p);
  read_keys(args, p);
  if (p.device == Device::cuda) check_cuda_inputs(args, p);
  read_lengths(args, phase, p);
  read_mask_options(args, p);
  read_scale(args.query_scale, "query_scale", "query", p.q_dtype, p.heads_q, p.q_scale, p.q_scale_head);
  read_scale(args.key_scale, "key_scale", "key", p.kv_dtype, p.heads_kv, p.k_scale, p.k_scale_head);
  read_scale(args.value_scale, "value_scale", "value", p.kv_dtype, p.heads_kv, p.v_scale, p.v_scale_head);
  read_lambda(args, p);
  p.batch_invariant = args.batch_invariant;  // decides where decode splits the keys, hence what may be skipped
  return p;
}

}  // namespace longhaul
