#include "attention/reference/skip_margins.h"

#include <gtest/gtest.h>

#include "attention/testing/attention_case.h"
#include "attention/tile_plan.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using conformance::AttentionCase;
using conformance::CaseSpec;

constexpr float kLambdas[] = {0, 0.001F, 0.3F, 1};

// Returns the scores skipped over all lambdas, so that callers can see that something was.
int64_t expect_same_as_oracle(AttentionCase& test, const ReferenceOptions& options) {
  AttentionArgs args = test.args;
  args.rule = SkipRule::max;
  const SkipMargins margins = skip_margins(args, options);
  int64_t total = 0;
  for (const float lambda : kLambdas) {
    args.lambda = Lambda::scalar(lambda);
    const ReferenceResult expected = reference_attention(args, options);
    EXPECT_EQ(static_cast<size_t>(margins.voting_heads()) * 4, expected.counters.size());
    for (int head = 0; head < margins.voting_heads(); ++head) {
      EXPECT_EQ(margins.visible(head), expected.counters[head * 4]) << test.spec.describe();
      EXPECT_EQ(margins.skipped(head, lambda), expected.counters[head * 4 + 1])
          << lambda << " " << test.spec.describe();
      total += expected.counters[head * 4 + 1];
    }
  }
  return total;
}

TEST(SkipMargins, EveryLambdaSkipsExactlyWhatTheOracleSkips) {
  int64_t skipped = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    CaseSpec spec = conformance::random_spec(seed);
    spec.lambda = conformance::Lambdas::none;
    AttentionCase test(spec);
    const bool decode = spec.phase == Phase::decode;
    for (const VisitOrder order : {VisitOrder::newest_first, VisitOrder::ascending}) {
      skipped += expect_same_as_oracle(
          test, {.phase = spec.phase, .geometry = decode ? kCpuDecode : kCpuPrefill, .order = order});
      const Geometry coarse{.tile_keys = 128, .block_keys = 128, .group_rows = decode ? 0 : 64};
      skipped += expect_same_as_oracle(
          test, {.phase = spec.phase, .geometry = coarse, .order = order, .kernel_splits = false});
    }
  }
  EXPECT_GT(skipped, 0);
}

TEST(SkipMargins, LongDecodeFollowsTheKernelsSplits) {
  CaseSpec spec;
  spec.phase = Phase::decode;
  spec.long_keys = 9000;
  spec.group = 2;
  AttentionCase test(spec);
  EXPECT_GT(expect_same_as_oracle(test, {.phase = Phase::decode, .geometry = kCpuDecode}), 0);
  EXPECT_GT(expect_same_as_oracle(test, {.phase = Phase::decode, .geometry = kCpuDecode, .kernel_splits = false}), 0);
}

TEST(SkipMargins, RefusesWhatOneNumberABlockCannotTell) {
  AttentionCase test(CaseSpec{});
  AttentionArgs args = test.args;
  args.rule = SkipRule::sum;
  EXPECT_THROW(skip_margins(args, {}), Unsupported);
  EXPECT_THROW(skip_margins(test.args, {.phase = Phase::decode, .geometry = {128, 64, 0}}), Unsupported);
  EXPECT_THROW(skip_margins(test.args, {.geometry = {64, 48, 16}}), InvalidArgument);
}

}  // namespace
}  // namespace longhaul
