#include "attention/params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/mask_layout.h"
#include "attention/params_test_call.h"
#include "attention/tile_plan.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

TEST(Params, ResolvesRaggedCall) {
  Call call;
  call.args.lse = TensorView(call.lse.data(), DType::f32, {4, 5});
  call.args.threads = 3;
  const AttentionParams p = make_params(call.args, Phase::prefill);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.group, 2);
  EXPECT_EQ(p.q_length(1), 2);
  EXPECT_EQ(p.kv_length(1), 30);
  EXPECT_FLOAT_EQ(p.scale, 0.125F);
  EXPECT_EQ(p.k_offset(1, 2, 1), 42 * 128 + 64);
  EXPECT_EQ(p.threads, 3);
  EXPECT_EQ(p.lse, call.lse.data());
  EXPECT_EQ(p.page_size, 0);
}

TEST(Params, ResolvesPagedCallInAnyStrideOrder) {
  Call call;
  call.make_paged();
  // Heads before tokens, keys and values interleaved per page.
  const int64_t page = 2 * 16 * 2 * 64;
  call.k.resize(8 * page);
  call.args.key = TensorView(call.k.data(), DType::bf16, {8, 16, 2, 64}, {page, 64, 16 * 64, 1});
  call.args.value = TensorView(call.k.data() + page / 2, DType::bf16, {8, 16, 2, 64}, {page, 64, 16 * 64, 1});
  const AttentionParams p = make_params(call.args, Phase::decode);
  EXPECT_EQ(p.page_size, 16);
  EXPECT_EQ(p.kv_length(0), 40);
  EXPECT_EQ(p.k_offset(0, 35, 1), 7 * page + 3 * 64 + 16 * 64);
}

TEST(Params, AcceptsEveryDtypeCombination) {
  const DType wide[] = {DType::f32, DType::f16, DType::bf16};
  Call call;
  call.q.resize(1 << 16), call.k.resize(1 << 16), call.v.resize(1 << 16), call.out.resize(1 << 16);
  for (DType q : wide)
    for (DType kv : {q, DType::f8e4m3}) {
      call.args.query.dtype = call.args.output.dtype = q;
      call.args.key.dtype = call.args.value.dtype = kv;
      EXPECT_NO_THROW(make_params(call.args, Phase::prefill)) << dtype_name(q) << " " << dtype_name(kv);
    }
  call.make_fp8();
  for (DType out : wide) {
    call.args.output.dtype = out;
    const AttentionParams p = make_params(call.args, Phase::prefill);
    EXPECT_EQ(p.out_dtype, out);
    EXPECT_EQ(p.q_scale_head, 1);
    EXPECT_EQ(p.k_scale_head, 0);
    EXPECT_EQ(p.v_scale_head, 1);
  }
}

TEST(Params, AcceptsEveryHeadSize) {
  for (auto [d, dv] : {std::pair<int64_t, int64_t>{64, 64}, {128, 128}, {192, 128}, {256, 256}}) {
    Call call;
    call.k.resize(70 * 2 * 256), call.v.resize(70 * 2 * 256);
    call.args.query = TensorView(call.q.data(), DType::bf16, {5, 4, d});
    call.args.key = TensorView(call.k.data(), DType::bf16, {70, 2, d});
    call.args.value = TensorView(call.v.data(), DType::bf16, {70, 2, dv});
    call.args.output = TensorView(call.out.data(), DType::bf16, {5, 4, dv});
    EXPECT_EQ(make_params(call.args, Phase::prefill).dv, dv);
  }
}

TEST(Params, AcceptsNothingToDo) {
  Call call;
  std::vector<int32_t> none{0};
  call.args.query = TensorView(nullptr, DType::bf16, {0, 4, 64});
  call.args.output = TensorView(nullptr, DType::bf16, {0, 4, 64});
  call.args.cu_seqlens_q = Call::i32(none);
  call.args.key = call.args.value = TensorView(nullptr, DType::bf16, {0, 2, 64});
  call.args.cu_seqlens_kv = Call::i32(none);
  for (Phase phase : {Phase::prefill, Phase::decode}) EXPECT_EQ(make_params(call.args, phase).batch, 0);

  call.args.key = call.args.value = TensorView(nullptr, DType::bf16, {0, 16, 2, 64});
  call.args.cu_seqlens_kv = {};
  call.args.page_table = TensorView(nullptr, DType::i32, {0, 0});
  call.args.kv_lengths = TensorView(nullptr, DType::i32, {0});
  for (Phase phase : {Phase::prefill, Phase::decode}) EXPECT_EQ(make_params(call.args, phase).batch, 0);
}

TEST(Params, AcceptsSinkOfMinusInfinityAndLargeWindow) {
  Call call;
  call.f32[2] = -kInf;
  call.args.sinks = call.floats({4});
  call.args.window_left = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(make_params(call.args, Phase::prefill).window_left, -1);
}

TEST(Params, LambdaStridesMayBeZero) {
  Call call;
  call.f32 = {0.25F, 0.5F, 1.0F, 0.0F};
  call.args.lambda = Lambda::per_head(TensorView(call.f32.data(), DType::f32, {2, 4}, {0, 1}));
  const AttentionParams p = make_params(call.args, Phase::prefill);
  EXPECT_EQ(p.lambda_of(1, 2), 1.0F);
  EXPECT_EQ(p.lambda_of(0, 1), 0.5F);
}

TEST(MaskLayout, GroupsAtAbsolutePositions) {
  EXPECT_EQ(group_of(0, 16), 0);
  EXPECT_EQ(group_of(15, 16), 0);
  EXPECT_EQ(group_of(16, 16), 1);
  EXPECT_EQ(group_of(-1, 16), -1);
  EXPECT_EQ(group_of(-16, 16), -1);
  EXPECT_EQ(group_of(-17, 16), -2);
  Call call;  // queries at 37..39 and 28..29
  const AttentionParams p = make_params(call.args, Phase::prefill);
  const SkipMaskShape fine = mask_shape(p, Phase::prefill, {64, 16, 2});
  EXPECT_EQ(fine.voting_heads, 4);
  EXPECT_EQ(fine.groups, 2 + 1);
  EXPECT_EQ(fine.blocks, 3);
  EXPECT_EQ(mask_shape(p, Phase::decode, kCpuDecode).groups, 2);
  EXPECT_EQ(mask_shape(p, Phase::decode, kCpuDecode).voting_heads, 2);
}

}  // namespace
}  // namespace longhaul
