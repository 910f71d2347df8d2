// What skipping must and must not do, on every instruction set of the machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attention/testing/attention_case.h"
#include "attention/testing/compare.h"
#include "attention/testing/on_every_isa.h"
#include "attention/testing/score_case.h"
#include "attention/tile_plan.h"

namespace longhaul {
namespace {

using namespace conformance;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int64_t column_sum(const GuardedTensor& counters, int64_t kind) {
  int64_t sum = 0;
  for (int64_t h = 0; h < counters.view().shape[0]; ++h) sum += static_cast<int64_t>(counters.at({h, kind}));
  return sum;
}

// Prefill of 128 tokens: 8 groups of 16 rows, 8 blocks of 16 keys, tiles 0-63 and 64-127. Block 5 (keys 80-95) lies 10
// above all.
TEST_P(OnEveryIsa, PrefillKnownMask) {
  std::vector<float> scores(128, 0.0F);
  for (int j = 80; j < 96; ++j) scores[j] = 10;
  ScoreCase test(scores, 128);
  test.args.lambda = Lambda::scalar(0.01F);  // ln = -4.6
  test.run();
  EXPECT_EQ(mask_text(test.skip_mask),
            "10000000"  // tile 0 is the first one visited
            "11000000"
            "11100000"
            "11110000"
            "11111000"  // rows 64-79 do not see block 5
            "22221100"  // from here on tile 0 lies 10 below
            "22221110"
            "22221111");
  EXPECT_EQ(test.counters[0], 128 * 129 / 2);
  EXPECT_EQ(test.counters[1], 3 * 16 * 64);
  EXPECT_EQ(test.counters[3], 0);
  // Row 127 keeps keys 64-127: 16 at weight 1 and 48 at exp(-10).
  double mass = 0, sum = 0;
  for (int j = 64; j < 128; ++j) mass += std::exp(scores[j] - 10.0), sum += std::exp(scores[j] - 10.0) * (j + 1);
  EXPECT_NEAR(test.out(127, 0), sum / mass, 1e-4);
  EXPECT_NEAR(test.lse[127], 10 + std::log(mass), 1e-5);
}

TEST_P(OnEveryIsa, PrefillOneRowKeepsTheBlock) {
  std::vector<float> scores(128, 0.0F);
  scores[127] = 10;
  ScoreCase test(scores, 16);  // rows at 112-127, one group; only row 127 sees key 127
  test.args.lambda = Lambda::scalar(0.01F);
  test.run();
  EXPECT_EQ(mask_text(test.skip_mask), "11111111");
  for (int j = 64; j < 80; ++j) test.key(j) = 10;  // every row sees a large score in the first tile
  test.run();
  EXPECT_EQ(mask_text(test.skip_mask), "22221111");
  EXPECT_EQ(test.counters[1], 16 * 64);
  test.query(3, 0) = 0.1F;  // this row's largest score is 1: it objects
  test.run();
  EXPECT_EQ(mask_text(test.skip_mask), "11111111");
  EXPECT_EQ(test.counters[1], 0);
}

TEST_P(OnEveryIsa, DecodeKnownMaskAndValueBytes) {
  // Two KV heads with two query heads each, 256 keys. The newest tile holds 10 for KV head 0; KV head 1 has -10
  // everywhere.
  std::vector<float> scores(256, 0.0F);
  scores[200] = 10;
  ScoreCase test(scores, 1, 4, 2, Phase::decode);
  for (int j = 0; j < 256; ++j) test.key(j, 1) = -10;
  test.key(100, 0) = 8;  // block 6 stays: 8 - 10 is above ln 0.01
  test.args.lambda = Lambda::scalar(0.01F);
  test.run();
  EXPECT_EQ(mask_text(test.skip_mask),
            "2222221222221111"
            "1111111111111111");
  EXPECT_EQ(test.counters, (std::vector<int64_t>{512, 2 * 11 * 16, 11 * 16 * 64 * 4, 0, 512, 0, 0, 0}));
  test.query(0, 1) = 0;  // the second query head of KV head 0 objects to all
  test.run();
  EXPECT_EQ(mask_text(test.skip_mask),
            "1111111111111111"
            "1111111111111111");
  EXPECT_EQ(test.counters[1], 0);
  EXPECT_EQ(test.counters[2], 0);
}

TEST_P(OnEveryIsa, DecodePartsStartFromTheNewestTile) {
  std::vector<float> scores(4096, 0.0F);
  scores[4095] = 9;
  ScoreCase test(scores, 1, 1, 1, Phase::decode);  // split in 4 parts
  test.args.lambda = Lambda::scalar(0.01F);
  test.run();
  EXPECT_EQ(test.counters, (std::vector<int64_t>{4096, 4096 - 64, (4096 - 64) * 64 * 4, 0}));
  EXPECT_NEAR(test.lse[0], std::log(std::exp(9.0) + 63), 1e-5);
}

TEST_P(OnEveryIsa, SumRuleDropsWhatTheMassOutweighs) {
  // The newest tile's 64 keys of score 0 have a mass of ln 64 = 4.16; blocks at -3 lie 7.2 below it but only 3 below
  // the maximum.
  std::vector<float> scores(128, -3.0F);
  for (int j = 64; j < 128; ++j) scores[j] = 0;
  for (Phase phase : {Phase::prefill, Phase::decode}) {
    ScoreCase test(scores, 1, 1, 1, phase);
    test.args.lambda = Lambda::scalar(0.001F);  // ln = -6.9
    test.run();
    EXPECT_EQ(mask_text(test.skip_mask), "11111111");
    test.args.rule = SkipRule::sum;
    test.run();
    EXPECT_EQ(mask_text(test.skip_mask), "22221111");
    test.args.lambda = Lambda::scalar(0.0005F);  // ln = -7.6
    test.run();
    EXPECT_EQ(mask_text(test.skip_mask), "11111111");
  }
}

TEST_P(OnEveryIsa, LambdaZeroGivesTheDenseBits) {
  for (uint64_t seed = 1; seed <= seeds(16); ++seed) {
    CaseSpec spec = random_spec(seed);
    spec.lambda = Lambdas::none;
    AttentionCase test(spec);
    test.run();
    const std::vector<uint8_t> output = test.output.elements(), lse = test.lse.elements();
    for (SkipRule rule : {SkipRule::max, SkipRule::sum}) {
      test.args.rule = rule;
      test.args.lambda = Lambda::scalar(0);
      test.run();
      ASSERT_EQ(test.output.elements(), output) << spec.describe();
      ASSERT_EQ(test.lse.elements(), lse) << spec.describe();
      ASSERT_EQ(column_sum(test.counters, 1), 0);
      ASSERT_EQ(column_sum(test.counters, 2), 0);
    }
  }
}

TEST_P(OnEveryIsa, SparsityGrowsWithLambda) {
  int64_t most = 0;
  for (uint64_t seed = 1; seed <= seeds(8); ++seed) {
    CaseSpec spec = random_spec(seed);
    spec.rule = SkipRule::max;  // under rule sum less kept mass may keep more: not monotone by definition
    spec.lambda = Lambdas::none;
    spec.poison = Poison::none;
    spec.lengths = Lengths::chunked;
    AttentionCase test(spec);
    int64_t before = 0;
    for (float lambda : {0.0F, 1e-6F, 1e-4F, 1e-3F, 0.01F, 0.03F, 0.1F, 0.3F, 0.6F, 1.0F}) {
      test.args.lambda = Lambda::scalar(lambda);
      test.run();
      const int64_t skipped = column_sum(test.counters, 1);
      ASSERT_GE(skipped, before) << spec.describe() << " lambda " << lambda;
      ASSERT_LT(skipped, column_sum(test.counters, 0));
      before = skipped;
    }
    most = std::max(most, before);
  }
  EXPECT_GT(most, 0);
}

TEST_P(OnEveryIsa, ProbesCountWhatEachLambdaSkips) {
  int64_t total = 0;
  for (uint64_t seed = 1; seed <= seeds(8); ++seed) {
    for (SkipRule rule : {SkipRule::max, SkipRule::sum}) {
      CaseSpec spec = random_spec(seed);
      spec.rule = rule;
      spec.lambda = Lambdas::none;
      AttentionCase test(spec);
      test.run();
      const std::vector<uint8_t> dense = test.output.elements();
      std::vector<float> lambdas{1e-5F, 0.001F, 0.01F, 0.1F, 0.5F, 1.0F};
      const int64_t heads = test.counters.view().shape[0], n = static_cast<int64_t>(lambdas.size());
      std::vector<int64_t> probed(heads * n, 1000);  // added to
      test.args.probe_lambdas = TensorView(lambdas.data(), DType::f32, {n});
      test.args.probe_skipped = TensorView(probed.data(), DType::i64, {heads, n});
      test.run();
      ASSERT_EQ(test.output.elements(), dense) << spec.describe();
      test.args.probe_lambdas = test.args.probe_skipped = {};
      for (int64_t i = 0; i < n; ++i) {
        test.args.lambda = Lambda::scalar(lambdas[i]);
        test.run();
        for (int64_t h = 0; h < heads; ++h) {
          ASSERT_EQ(probed[h * n + i] - 1000, static_cast<int64_t>(test.counters.at({h, 1})))
              << spec.describe() << " head " << h << " lambda " << lambdas[i];
          total += probed[h * n + i] - 1000;
        }
      }
    }
  }
  EXPECT_GT(total, 0);
}

TEST_P(OnEveryIsa, RowsThatSeeNothing) {
  for (Phase phase : {Phase::prefill, Phase::decode}) {
    std::vector<float> sinks{3};
    ScoreCase test({1, 2}, 5, 1, 1, phase);  // positions -3 to 1
    test.args.sinks = TensorView(sinks.data(), DType::f32, {1});
    test.args.lambda = Lambda::scalar(0.5F);
    test.run();
    for (int row = 0; row < 3; ++row) {
      EXPECT_EQ(test.lse[row], -kInf);
      EXPECT_EQ(test.out(row, 0), 0);
    }
    EXPECT_NEAR(test.lse[3], std::log(std::exp(1.0) + std::exp(3.0)), 1e-5);
    EXPECT_NEAR(test.lse[4], std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 1e-5);
    EXPECT_EQ(test.counters[0], 3);
  }
}

// NaN where the oracle has NaN, the same infinity where it has one, and near where it is finite.
void expect_as_oracle(const ScoreCase& test, const std::string& what, double tolerance) {
  const ReferenceResult oracle = test.oracle();
  ASSERT_EQ(mask_text(test.skip_mask), mask_text(oracle.skip_mask)) << what;
  const auto same = [&](double actual, double expected) {
    if (std::isnan(expected)) return std::isnan(actual);
    return std::isinf(expected) ? actual == expected : std::fabs(actual - expected) <= tolerance;
  };
  for (size_t i = 0; i < oracle.output.size(); ++i)
    ASSERT_TRUE(same(test.output[i], oracle.output[i]))
        << what << ": output " << i << " is " << test.output[i] << ", not " << oracle.output[i];
  for (size_t i = 0; i < oracle.lse.size(); ++i)
    ASSERT_TRUE(same(test.lse[i], oracle.lse[i]))
        << what << ": lse " << i << " is " << test.lse[i] << ", not " << oracle.lse[i];
}

// A value that is not finite, at keys of the newest tile, of the middle and of the oldest block: results as the
// oracle's, and its block is kept wherever it is seen.
TEST_P(OnEveryIsa, NotFiniteInputsPropagateAndAreNeverSkipped) {
  for (Phase phase : {Phase::prefill, Phase::decode}) {
    for (float bad : {kNan, kInf, -kInf}) {
      for (int64_t at : {0, 70, 149}) {
        for (bool in_key : {true, false}) {
          std::vector<float> scores(150, 0.0F);
          scores[140] = 10;
          ScoreCase test(scores, phase == Phase::prefill ? 40 : 2, 2, 1, phase);
          test.args.lambda = Lambda::scalar(0.01F);
          (in_key ? test.key(at) : test.value(at, 0, 5)) = bad;
          test.run();
          const std::string what = fmt::format("{} at {} {}", bad, at, in_key ? "key" : "value");
          ASSERT_NO_FATAL_FAILURE(expect_as_oracle(test, what, 1e-3));
          if (!in_key) continue;
          const size_t blocks = 10;
          for (size_t g = 0; g < test.skip_mask.size() / blocks; ++g)
            EXPECT_NE(test.skip_mask[g * blocks + at / 16], 2);
        }
      }
    }
  }
}

// Decode in 1, 2, 4 and 9 parts: one key or a whole part that is not finite, in the newest tile, at the ends of parts
// and inside them. A part whose scores are all -inf has no weight, but 0 x inf is NaN there as in one part.
TEST_P(OnEveryIsa, DecodePartsAgreeOnInputsThatAreNotFinite) {
  int nan_rows = 0, finite_rows = 0;
  for (const int keys : {1000, 2000, 4000, 9000}) {
    const int parts = decode_splits(keys, 1, false);
    ASSERT_EQ(parts, (keys + 1023) / 1024);
    std::vector<KeyRange> places{{keys - 3, keys - 2}, {0, 1}};
    for (const int part : std::set<int>{0, parts / 2, parts - 1}) {
      const KeyRange range = decode_split({0, keys}, parts, part);
      places.insert(places.end(), {range, {range.begin, range.begin + 1}, {range.end - 80, range.end - 79}});
    }
    places.push_back({0, keys});
    for (const KeyRange& place : places)
      for (const float bad : {kNan, kInf, -kInf})
        for (const char* where : {"key", "value", "value under a score of -inf"})
          for (const bool batch_invariant : {false, true}) {
            std::vector<float> scores(keys, 0.0F);
            scores[keys / 2] = 10;
            ScoreCase test(scores, 2, 2, 1, Phase::decode);
            test.args.batch_invariant = batch_invariant;
            const std::string_view kind = where;
            for (int64_t j = place.begin; j < place.end; ++j) {
              if (kind == "key") test.key(j) = bad;
              if (kind != "key") test.value(j, 0, 5) = bad;
              if (kind == "value under a score of -inf") test.key(j) = -kInf;
            }
            for (const Lambda& lambda : {Lambda::none(), Lambda::scalar(0.01F)}) {
              test.args.lambda = lambda;
              test.run();
              const std::string what =
                  fmt::format("{} keys{}, {} in {} of [{}, {}), lambda {}", keys,
                              batch_invariant ? " in few parts" : "", bad, where, place.begin, place.end, lambda.value);
              ASSERT_NO_FATAL_FAILURE(expect_as_oracle(test, what, 1e-5 * keys));
              (std::isnan(test.out(1, 1, 5)) ? nan_rows : finite_rows) += 1;
            }
          }
  }
  EXPECT_GT(nan_rows, 100);
  EXPECT_GT(finite_rows, 100);
}

TEST_P(OnEveryIsa, NotFiniteQueryKeepsItsRowsBlocks) {
  for (float bad : {kNan, kInf, -kInf}) {
    std::vector<float> scores(256, 1.0F);
    scores[200] = 20;  // in the newest tile of both groups, rows at 224-239 and 240-255
    ScoreCase test(scores, 32);
    test.args.lambda = Lambda::scalar(0.01F);
    test.run();
    EXPECT_EQ(mask_text(test.skip_mask),
              "2222222222221110"
              "2222222222221111");
    test.query(20, 0) = bad;  // in the second group
    test.run();
    EXPECT_EQ(mask_text(test.skip_mask),
              "2222222222221110"
              "1111111111111111");
    EXPECT_EQ(mask_text(test.skip_mask), mask_text(test.oracle().skip_mask));
    EXPECT_EQ(test.counters[1], 16 * 192);
    EXPECT_TRUE(std::isfinite(test.out(19, 0)));
    EXPECT_TRUE(std::isfinite(test.out(21, 0)));
    EXPECT_EQ(std::isnan(test.out(20, 0)), std::isnan(test.oracle().output[20 * 64]));
  }
}

}  // namespace
}  // namespace longhaul
