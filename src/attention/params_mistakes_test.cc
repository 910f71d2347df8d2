// Every mistake in a call gives one sentence with the argument and its value.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "attention/params.h"
#include "attention/params_test_call.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

struct Mistake {
  const char* name;
  std::function<void(Call&)> make;
  std::vector<std::string> message;  // every part must appear
  ErrorCode code = ErrorCode::invalid_argument;
};

const std::vector<Mistake>& mistakes() {
  using C = Call;
  static const std::vector<Mistake> all = {
      // Phase, devices, required arguments.
      {"phase", [](C& c) { c.phase = static_cast<Phase>(7); }, {"phase is 7"}},
      {"query_missing", [](C& c) { c.args.query = {}; }, {"query is not given"}},
      {"key_missing", [](C& c) { c.args.key = {}; }, {"key is not given"}},
      {"value_missing", [](C& c) { c.args.value = {}; }, {"value is not given"}},
      {"output_missing", [](C& c) { c.args.output = {}; }, {"output is not given"}},
      {"cu_q_missing", [](C& c) { c.args.cu_seqlens_q = {}; }, {"cu_seqlens_q is not given"}},
      {"cu_kv_missing", [](C& c) { c.args.cu_seqlens_kv = {}; }, {"cu_seqlens_kv is not given"}},
      {"query_null", [](C& c) { c.args.query.data = nullptr; }, {"query"}},
      {"query_negative_stride", [](C& c) { c.args.query.stride[0] = -256; }, {"query", "-256"}},
      {"key_cuda",
       [](C& c) { c.args.key.device = Device::cuda; },
       {"key is bfloat16[70, 2, 64] on a CUDA device", "query is on the CPU"}},
      {"key_misaligned", [](C& c) { c.args.key.data = static_cast<char*>(c.args.key.data) + 1; }, {"key", "2 bytes"}},
      // Query.
      {"query_rank", [](C& c) { c.args.query.rank = 2; }, {"query is bfloat16[5, 4]", "[total_q, heads_q, d]"}},
      {"query_dtype",
       [](C& c) { c.args.query.dtype = DType::u8; },
       {"query has dtype uint8", "float8_e4m3"},
       ErrorCode::unsupported},
      {"query_strided", [](C& c) { c.args.query.stride[2] = 2; }, {"query has stride 2", "contiguous"}},
      {"query_heads", [](C& c) { c.args.query.shape[1] = 0; }, {"query has 0 heads"}},
      {"query_d",
       [](C& c) {
         c.args.query.shape[2] = 96;
         c.args.query.stride = {384, 96, 1, 0};
       },
       {"query has head size 96", "64, 128, 192", "256"},
       ErrorCode::unsupported},
      {"query_tokens",
       [](C& c) {
         c.args.query.shape[0] = int64_t{1} << 32;
         c.args.query.stride[0] = 0;
       },
       {"query has 4294967296 tokens", "2147483647"}},
      // Key and value.
      {"key_rank", [](C& c) { c.args.key.rank = 2; }, {"key is bfloat16[70, 2]", "[pages, page_size, heads_kv, d]"}},
      {"key_dtype",
       [](C& c) { c.args.key.dtype = DType::f16; },
       {"key has dtype float16", "bfloat16 or float8_e4m3"},
       ErrorCode::unsupported},
      {"key_dtype_fp8_query",
       [](C& c) { c.args.query.dtype = DType::f8e4m3; },
       {"key has dtype bfloat16", "must be float8_e4m3"},
       ErrorCode::unsupported},
      {"key_heads_zero", [](C& c) { c.args.key.shape[1] = 0; }, {"key has 0 heads", "4 heads"}},
      {"key_heads_odd",
       [](C& c) {
         c.args.key.shape[1] = 3;
         c.args.key.stride[0] = 192;
       },
       {"key has 3 heads", "4 heads"}},
      {"key_d", [](C& c) { c.args.key.shape[2] = 32; }, {"key has head size 32", "query has 64"}},
      {"key_strided",
       [](C& c) {
         c.args.key.stride[2] = 3;
         c.args.key.shape[0] = 1;
       },
       {"key has stride 3"}},
      {"key_tokens",
       [](C& c) {
         c.args.key.shape[0] = int64_t{1} << 33;
         c.args.key.stride[0] = 0;
       },
       {"key has 8589934592 tokens"}},
      {"page_size",
       [](C& c) {
         c.make_paged();
         c.args.key.shape[1] = c.args.value.shape[1] = 24;
       },
       {"key has page size 24", "16 to 256"},
       ErrorCode::unsupported},
      {"page_size_large",
       [](C& c) {
         c.make_paged();
         c.args.key.shape[0] = 1;
         c.args.key.shape[1] = 272;
         c.args.key.stride[1] = 0;
       },
       {"key has page size 272"},
       ErrorCode::unsupported},
      {"value_dtype", [](C& c) { c.args.value.dtype = DType::f8e4m3; }, {"value has dtype float8_e4m3", "bfloat16"}},
      {"value_tokens",
       [](C& c) { c.args.value.shape[0] = 69; },
       {"value is bfloat16[69, 2, 64]", "bfloat16[70, 2, 64]"}},
      {"value_rank",
       [](C& c) { c.args.value = TensorView(c.v.data(), DType::bf16, {70, 128}); },
       {"value is bfloat16[70, 128]"}},
      {"value_d",
       [](C& c) { c.args.value.shape[2] = 32; },
       {"value has head size 32", "supported is 64"},
       ErrorCode::unsupported},
      {"value_strided",
       [](C& c) {
         c.args.value.stride[2] = 2;
         c.args.value.shape[0] = 1;
       },
       {"value has stride 2"}},
      // Lengths, ragged.
      {"cu_q_dtype",
       [](C& c) { c.args.cu_seqlens_q.dtype = DType::f32; },
       {"cu_seqlens_q is float32[3]", "int32[batch + 1]"}},
      {"cu_q_empty", [](C& c) { c.args.cu_seqlens_q.shape[0] = 0; }, {"cu_seqlens_q is int32[0]"}},
      {"cu_q_strided",
       [](C& c) {
         c.args.cu_seqlens_q.shape[0] = 2;
         c.args.cu_seqlens_q.stride[0] = 2;
       },
       {"cu_seqlens_q", "contiguous"}},
      {"cu_q_start", [](C& c) { c.cu_q[0] = 1; }, {"cu_seqlens_q[0] is 1"}},
      {"cu_q_falls", [](C& c) { c.cu_q[1] = 6; }, {"cu_seqlens_q[2] is 5", "before, 6"}},
      {"cu_q_total", [](C& c) { c.cu_q[2] = 4; }, {"cu_seqlens_q[2] is 4", "5 tokens of query"}},
      {"cu_kv_total", [](C& c) { c.cu_kv[2] = 71; }, {"cu_seqlens_kv[2] is 71", "70 tokens of key"}},
      {"cu_kv_negative", [](C& c) { c.cu_kv[1] = -1; }, {"cu_seqlens_kv[1] is -1"}},
      {"cu_kv_entries",
       [](C& c) { c.args.cu_seqlens_kv.shape[0] = 2; },
       {"cu_seqlens_kv has 2 entries", "cu_seqlens_q has 3"}},
      {"ragged_page_table",
       [](C& c) { c.args.page_table = TensorView(c.table.data(), DType::i32, {2, 3}); },
       {"page_table is given (int32[2, 3])", "ragged"}},
      {"ragged_kv_lengths", [](C& c) { c.args.kv_lengths = C::i32(c.lengths); }, {"kv_lengths is given", "ragged"}},
      // Lengths, paged.
      {"paged_cu_kv",
       [](C& c) {
         c.make_paged();
         c.args.cu_seqlens_kv = C::i32(c.cu_kv);
       },
       {"cu_seqlens_kv is given (int32[3])", "paged"}},
      {"page_table_missing",
       [](C& c) {
         c.make_paged();
         c.args.page_table = {};
       },
       {"page_table is not given"}},
      {"kv_lengths_missing",
       [](C& c) {
         c.make_paged();
         c.args.kv_lengths = {};
       },
       {"kv_lengths is not given"}},
      {"page_table_shape",
       [](C& c) {
         c.make_paged();
         c.args.page_table.shape[0] = 1;
       },
       {"page_table is int32[1, 3]", "int32[2, max_pages]"}},
      {"page_table_strided",
       [](C& c) {
         c.make_paged();
         c.args.page_table.shape[1] = 2;
         c.args.page_table.stride[1] = 2;
       },
       {"page_table has stride 2"}},
      {"kv_lengths_shape",
       [](C& c) {
         c.make_paged();
         c.args.kv_lengths.shape[0] = 1;
       },
       {"kv_lengths is int32[1]", "int32[2]"}},
      {"kv_lengths_over",
       [](C& c) {
         c.make_paged();
         c.lengths[1] = 49;
       },
       {"kv_lengths[1] is 49", "48 tokens"}},
      {"kv_lengths_negative",
       [](C& c) {
         c.make_paged();
         c.lengths[0] = -1;
       },
       {"kv_lengths[0] is -1"}},
      {"page_over",
       [](C& c) {
         c.make_paged();
         c.table[2] = 8;
       },
       {"page_table[0, 2] is 8", "8 pages"}},
      {"page_negative",
       [](C& c) {
         c.make_paged();
         c.table[3] = -1;
       },
       {"page_table[1, 0] is -1"}},
      {"decode_queries",
       [](C& c) {
         c.phase = Phase::decode;
         c.args.query.shape[0] = c.args.output.shape[0] = 19;
         c.args.query.stride[0] = 0;
         c.cu_q = {0, 2, 19};
       },
       {"cu_seqlens_q gives request 1 17 query tokens", "at most 16"}},
      // Results.
      {"output_dtype",
       [](C& c) { c.args.output.dtype = DType::f32; },
       {"output has dtype float32", "must be bfloat16"}},
      {"output_dtype_fp8",
       [](C& c) {
         c.make_fp8();
         c.args.output.dtype = DType::f8e4m3;
       },
       {"output has dtype float8_e4m3", "float32, float16 or bfloat16"}},
      {"output_shape", [](C& c) { c.args.output.shape[0] = 4; }, {"output is bfloat16[4, 4, 64]", "[5, 4, 64]"}},
      {"output_strided", [](C& c) { c.args.output.stride = {512, 128, 2, 0}; }, {"output has stride 2"}},
      {"output_stride_zero",
       [](C& c) { c.args.output.stride[0] = 0; },
       {"output has stride 0 in dimension 0", "overlap"}},
      {"output_overlap",
       [](C& c) { c.args.output.stride[0] = 255; },
       {"output has stride 255 in dimension 0", "overlap"}},
      {"lse_shape",
       [](C& c) { c.args.lse = TensorView(c.lse.data(), DType::f32, {5, 4}); },
       {"lse is float32[5, 4]", "float32[4, 5]"}},
      {"lse_dtype", [](C& c) { c.args.lse = TensorView(c.lse.data(), DType::i32, {4, 5}); }, {"lse is int32[4, 5]"}},
      {"lse_overlap",
       [](C& c) { c.args.lse = TensorView(c.lse.data(), DType::f32, {4, 5}, {1, 1}); },
       {"lse has stride 1", "overlap"}},
      {"counters_shape",
       [](C& c) { c.args.counters = TensorView(c.counters.data(), DType::i64, {2, 4}); },
       {"counters is int64[2, 4]", "int64[4, 4]"}},
      {"counters_decode",
       [](C& c) {
         c.phase = Phase::decode;
         c.args.counters = TensorView(c.counters.data(), DType::i64, {4, 4});
       },
       {"counters is int64[4, 4]", "int64[2, 4]"}},
      {"counters_overlap",
       [](C& c) { c.args.counters = TensorView(c.counters.data(), DType::i64, {4, 4}, {0, 1}); },
       {"counters has stride 0"}},
      {"mask_shape",
       [](C& c) { c.args.skip_mask = TensorView(c.mask.data(), DType::u8, {4, 2, 9}); },
       {"skip_mask is uint8[4, 2, 9]", "uint8[4, 2, 3]"}},
      {"mask_strided",
       [](C& c) { c.args.skip_mask = TensorView(c.mask.data(), DType::u8, {4, 2, 3}, {16, 8, 1}); },
       {"skip_mask", "contiguous"}},
      // Options.
      {"softmax_scale_nan", [](C& c) { c.args.softmax_scale = kNan; }, {"softmax_scale is nan"}},
      {"softmax_scale_negative", [](C& c) { c.args.softmax_scale = -0.5F; }, {"softmax_scale is -0.5"}},
      {"soft_cap_inf", [](C& c) { c.args.soft_cap = kInf; }, {"soft_cap is inf"}},
      {"soft_cap_negative", [](C& c) { c.args.soft_cap = -30; }, {"soft_cap is -30"}},
      {"window", [](C& c) { c.args.window_left = -2; }, {"window_left is -2"}},
      {"sinks_shape", [](C& c) { c.args.sinks = c.floats({2}); }, {"sinks is float32[2]", "float32[4]"}},
      {"sinks_nan",
       [](C& c) {
         c.f32[1] = kNan;
         c.args.sinks = c.floats({4});
       },
       {"sinks[1] is nan"}},
      {"sinks_inf",
       [](C& c) {
         c.f32[3] = kInf;
         c.args.sinks = c.floats({4});
       },
       {"sinks[3] is inf"}},
      {"sinks_strided",
       [](C& c) { c.args.sinks = TensorView(c.f32.data(), DType::f32, {4}, {2}); },
       {"sinks", "contiguous"}},
      {"query_scale_wide",
       [](C& c) { c.args.query_scale = c.floats({1}); },
       {"query_scale is given", "query has dtype bfloat16"}},
      {"key_scale_wide",
       [](C& c) { c.args.key_scale = c.floats({1}); },
       {"key_scale is given", "key has dtype bfloat16"}},
      {"value_scale_wide",
       [](C& c) { c.args.value_scale = c.floats({1}); },
       {"value_scale is given", "value has dtype bfloat16"}},
      {"query_scale_shape",
       [](C& c) {
         c.make_fp8();
         c.args.query_scale = c.floats({3});
       },
       {"query_scale is float32[3]", "float32[4]"}},
      {"key_scale_zero",
       [](C& c) {
         c.make_fp8();
         c.f32[0] = 0;
         c.args.query_scale = {};
       },
       {"key_scale[0] is 0"}},
      {"value_scale_nan",
       [](C& c) {
         c.make_fp8();
         c.f32[1] = kNan;
         c.args.query_scale = {};
       },
       {"value_scale[1] is nan"}},
      {"query_scale_negative",
       [](C& c) {
         c.make_fp8();
         c.f32[2] = -1;
       },
       {"query_scale[2] is -1"}},
      // Lambda and probes.
      {"rule", [](C& c) { c.args.rule = static_cast<SkipRule>(2); }, {"rule is 2"}},
      {"lambda_kind", [](C& c) { c.args.lambda.kind = static_cast<Lambda::Kind>(5); }, {"lambda.kind is 5"}},
      {"lambda_nan", [](C& c) { c.args.lambda = Lambda::scalar(kNan); }, {"lambda is nan", "0 to 1"}},
      {"lambda_over", [](C& c) { c.args.lambda = Lambda::scalar(1.5F); }, {"lambda is 1.5"}},
      {"lambda_negative", [](C& c) { c.args.lambda = Lambda::scalar(-0.25F); }, {"lambda is -0.25"}},
      {"lambda_none_value", [](C& c) { c.args.lambda.value = 0.5F; }, {"lambda.value is 0.5", "none"}},
      {"lambda_scalar_values",
       [](C& c) {
         c.args.lambda = Lambda::scalar(0.5F);
         c.args.lambda.values = c.floats({2, 4});
       },
       {"lambda.values is given (float32[2, 4])"}},
      {"lambdas_missing", [](C& c) { c.args.lambda.kind = Lambda::Kind::per_head; }, {"lambda.values is not given"}},
      {"lambdas_shape",
       [](C& c) { c.args.lambda = Lambda::per_head(c.floats({4, 2})); },
       {"lambda.values is float32[4, 2]", "float32[2, 4]"}},
      {"lambdas_value",
       [](C& c) {
         c.f32[6] = 2;
         c.args.lambda = Lambda::per_head(c.floats({2, 4}));
       },
       {"lambda.values of request 1, head 2 is 2"}},
      {"lambdas_nan",
       [](C& c) {
         c.f32[0] = kNan;
         c.args.lambda = Lambda::per_head(c.floats({2, 4}));
       },
       {"request 0, head 0 is nan"}},
      {"probe_alone",
       [](C& c) {
         c.make_probing();
         c.args.probe_lambdas = {};
       },
       {"probe_skipped is given"}},
      {"probe_skipped_missing",
       [](C& c) {
         c.make_probing();
         c.args.probe_skipped = {};
       },
       {"probe_skipped is not given"}},
      {"probe_count",
       [](C& c) {
         c.make_probing();
         c.f32.resize(33);
         c.args.probe_lambdas = c.floats({33});
       },
       {"probe_lambdas is float32[33]", "1 to 32"}},
      {"probe_with_lambda",
       [](C& c) {
         c.make_probing();
         c.args.lambda = Lambda::scalar(0);
       },
       {"probe_lambdas is given", "lambda none"}},
      {"probe_zero",
       [](C& c) {
         c.make_probing();
         c.f32[0] = 0;
       },
       {"probe_lambdas[0] is 0"}},
      {"probe_order",
       [](C& c) {
         c.make_probing();
         c.f32[2] = 0.2F;
       },
       {"probe_lambdas[2] is 0.2", "ascend"}},
      {"probe_over",
       [](C& c) {
         c.make_probing();
         c.f32[2] = 1.25F;
       },
       {"probe_lambdas[2] is 1.25"}},
      {"probe_nan",
       [](C& c) {
         c.make_probing();
         c.f32[1] = kNan;
       },
       {"probe_lambdas[1] is nan"}},
      {"probe_skipped_shape",
       [](C& c) {
         c.make_probing();
         c.args.probe_skipped.shape[1] = 2;
       },
       {"probe_skipped is int64[4, 2]", "int64[4, 3]"}},
      // Execution.
      {"threads", [](C& c) { c.args.threads = -1; }, {"threads is -1"}},
      {"too_many_threads", [](C& c) { c.args.threads = 1025; }, {"threads is 1025", "1024"}},
      {"stream", [](C& c) { c.args.stream = &c; }, {"stream", "CPU"}},
  };
  return all;
}

class ParamsMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ParamsMistake, GivesOneSentenceWithTheValue) {
  Call call;
  ASSERT_NO_THROW(make_params(call.args, call.phase));
  GetParam().make(call);
  try {
    make_params(call.args, call.phase);
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), GetParam().code) << what;
    for (const std::string& part : GetParam().message)
      EXPECT_NE(what.find(part), std::string::npos) << what << "\nlacks: " << part;
    EXPECT_EQ(what.find('\n'), std::string::npos);
    EXPECT_NE(what.back(), '.');
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ParamsMistake, testing::ValuesIn(mistakes()),
                         [](const auto& mistake) { return std::string(mistake.param.name); });

}  // namespace
}  // namespace longhaul
