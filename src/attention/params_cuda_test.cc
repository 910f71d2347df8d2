// What a call with tensors on a CUDA device must and must not be, without a device: nothing here may be read, so the
// addresses are those of nothing.
#include "attention/params_cuda.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "attention/params_test_call.h"
#include "attention/reference/reference.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

// A call whose tensors all lie at addresses that cannot be read.
struct CudaCall : Call {
  static void* nowhere(int index) { return reinterpret_cast<void*>(uintptr_t{0x1000} * (index + 1)); }

  explicit CudaCall(Phase kind = Phase::prefill) {
    const int64_t voting_heads = kind == Phase::decode ? kHkv : kHq;
    int index = 0;
    for (TensorView* view :
         {&args.query, &args.key, &args.value, &args.output, &args.cu_seqlens_q, &args.cu_seqlens_kv})
      place(*view, index += 16);
    place(args.lse = TensorView(nowhere(1), DType::f32, {kHq, kQ}), 200);
    place(args.counters = TensorView(nowhere(1), DType::i64, {voting_heads, 4}), 201);
    place(args.skip_mask = TensorView(nowhere(1), DType::u8, {voting_heads, 2, 9}), 202);
    place(args.sinks = TensorView(nowhere(1), DType::f32, {kHq}), 203);
    args.lambda = Lambda::per_head(TensorView(nowhere(204), DType::f32, {2, kHq}, Device::cuda));
    args.stream = nowhere(300);
  }
  static void place(TensorView& view, int index) {
    view.data = nowhere(index);
    view.device = Device::cuda;
  }
  void make_pages(int64_t page_size) {
    args.key = TensorView(nowhere(400), DType::bf16, {8, page_size, kHkv, kD}, Device::cuda);
    args.value = TensorView(nowhere(500), DType::bf16, {8, page_size, kHkv, kD}, Device::cuda);
    args.cu_seqlens_kv = {};
    args.page_table = TensorView(nowhere(600), DType::i32, {2, 3}, Device::cuda);
    args.kv_lengths = TensorView(nowhere(601), DType::i32, {2}, Device::cuda);
  }
};

TEST(CudaParams, ReadNoDeviceMemory) {
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    CudaCall call(phase);
    const AttentionParams p = make_params(call.args, phase);
    EXPECT_EQ(p.device, Device::cuda);
    EXPECT_EQ(p.stream, call.args.stream);
    EXPECT_EQ(p.batch, 2);
    EXPECT_EQ(p.kv_rows, 70);
    EXPECT_EQ(p.mask_heads, phase == Phase::decode ? 2 : 4);
    EXPECT_EQ(p.mask_groups, 2);
    EXPECT_EQ(p.mask_blocks, 9);
    EXPECT_EQ(p.lambdas, call.args.lambda.values.data);
    for (const int64_t page_size : {16, 48, 128, 256}) {
      call.make_pages(page_size);
      const AttentionParams paged = make_params(call.args, phase);
      EXPECT_EQ(paged.kv_rows, 8);
      EXPECT_EQ(paged.max_pages, 3);
      EXPECT_EQ(paged.page_size, page_size);
    }
  }
}

TEST(CudaParams, StridesOfSingleElementsAreFree) {
  CudaCall call;
  call.args.query.shape = {1, 4, 64, 0};
  call.args.query.stride = {3, 64, 1, 0};
  call.args.output.shape = {1, 4, 64, 0};
  call.args.output.stride = {5, 64, 1, 0};
  call.args.lse = {};
  call.args.key = TensorView(CudaCall::nowhere(400), DType::bf16, {70, 1, 64}, {64, 7, 1}, Device::cuda);
  call.args.value = TensorView(CudaCall::nowhere(500), DType::bf16, {70, 1, 64}, {128, 1, 1}, Device::cuda);
  const AttentionParams p = make_params(call.args, Phase::prefill);
  EXPECT_EQ(p.q_token, 256);
  EXPECT_EQ(p.k_head, 64);
  EXPECT_EQ(p.v_head, 64);
  EXPECT_EQ(p.v_token, 128);
}

TEST(CudaParams, HostReadersRefuseThem) {
  CudaCall call;
  call.args.lambda = Lambda::none();
  ReferenceOptions options;
  EXPECT_THROW(reference_attention(call.args, options), Unsupported);
}

struct Mistake {
  const char* name;
  std::function<void(CudaCall&)> make;
  std::vector<std::string> message;
  ErrorCode code = ErrorCode::invalid_argument;
};

const std::vector<Mistake>& mistakes() {
  using C = CudaCall;
  constexpr ErrorCode kUnsupported = ErrorCode::unsupported;
  static const std::vector<Mistake> all = {
      {"host_key",
       [](C& c) { c.args.key.device = Device::cpu; },
       {"key is bfloat16[70, 2, 64] on the CPU", "query is on a CUDA device", "one device"}},
      {"host_lengths", [](C& c) { c.args.cu_seqlens_q.device = Device::cpu; }, {"cu_seqlens_q is int32[3] on the CPU"}},
      {"host_lambda",
       [](C& c) { c.args.lambda.values.device = Device::cpu; },
       {"lambda.values is float32[2, 4] on the CPU"}},
      {"host_counters", [](C& c) { c.args.counters.device = Device::cpu; }, {"counters is int64[4, 4] on the CPU"}},
      {"host_query", [](C& c) { c.args.query.device = Device::cpu; }, {"key is bfloat16[70, 2, 64] on a CUDA device"}},
      {"float32",
       [](C& c) {
         for (TensorView* view : {&c.args.query, &c.args.key, &c.args.value, &c.args.output}) view->dtype = DType::f32;
       },
       {"query has dtype float32", "bfloat16 and float16"},
       kUnsupported},
      {"float8_keys",
       [](C& c) { c.args.key.dtype = c.args.value.dtype = DType::f8e4m3; },
       {"key has dtype float8_e4m3", "bfloat16 and float16"},
       kUnsupported},
      {"head_size",
       [](C& c) {
         c.args.query = TensorView(C::nowhere(1), DType::bf16, {5, 4, 256}, Device::cuda);
         c.args.key = TensorView(C::nowhere(1), DType::bf16, {70, 2, 256}, Device::cuda);
         c.args.value = c.args.key;
       },
       {"query has head size 256", "64 and 128"},
       kUnsupported},
      {"page_size", [](C& c) { c.make_pages(24); }, {"page size 24", "16 to 256"}, kUnsupported},
      {"query_address",
       [](C& c) { c.args.query.data = static_cast<char*>(c.args.query.data) + 8; },
       {"query is at address 0x", "16 bytes"}},
      {"output_address",
       [](C& c) { c.args.output.data = static_cast<char*>(c.args.output.data) + 2; },
       {"output is at address 0x", "16 bytes"}},
      {"key_stride",
       [](C& c) { c.args.key.stride = {132, 64, 1, 0}; },
       {"key has stride 132 in dimension 0", "multiple of 8 elements"}},
      {"value_stride",
       [](C& c) { c.args.value.stride = {140, 68, 1, 0}; },
       {"value has stride 140 in dimension 0", "multiple of 8 elements"}},
      {"broadcast_stride",
       [](C& c) { c.args.key.stride[1] = 0; },
       {"key has stride 0 in dimension 1", "lie apart"},
       kUnsupported},
      {"huge_stride",
       [](C& c) { c.args.key.stride[0] = int64_t{1} << 40; },
       {"key has stride 1099511627776", "549755813888"},
       kUnsupported},
      {"probes",
       [](C& c) {
         c.args.lambda = Lambda::none();
         c.args.probe_lambdas = TensorView(C::nowhere(7), DType::f32, {3}, Device::cuda);
         c.args.probe_skipped = TensorView(C::nowhere(8), DType::i64, {4, 3}, Device::cuda);
       },
       {"probe_lambdas is given", "CUDA"},
       kUnsupported},
      {"threads", [](C& c) { c.args.threads = 4; }, {"threads is 4", "must be 0"}},
      {"mask_heads",
       [](C& c) { c.args.skip_mask = TensorView(C::nowhere(9), DType::u8, {2, 3, 4}, Device::cuda); },
       {"skip_mask is uint8[2, 3, 4]", "uint8[4, groups, blocks]"}},
      {"mask_dtype", [](C& c) { c.args.skip_mask.dtype = DType::i32; }, {"skip_mask is int32[4, 2, 9]"}},
      {"lambda_value", [](C& c) { c.args.lambda = Lambda::scalar(2); }, {"lambda is 2"}},
      {"soft_cap", [](C& c) { c.args.soft_cap = -1; }, {"soft_cap is -1"}},
      {"scale", [](C& c) { c.args.softmax_scale = kNan; }, {"softmax_scale is nan"}},
  };
  return all;
}

class CudaMistake : public testing::TestWithParam<Mistake> {};

TEST_P(CudaMistake, GivesOneSentenceWithTheValue) {
  CudaCall call;
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

INSTANTIATE_TEST_SUITE_P(Every, CudaMistake, testing::ValuesIn(mistakes()),
                         [](const auto& mistake) { return std::string(mistake.param.name); });

}  // namespace
}  // namespace longhaul
