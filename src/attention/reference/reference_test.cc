#include "attention/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/testing/attention_case.h"
#include "attention/testing/score_case.h"
#include "longhaul/error.h"
#include "test_level.h"

namespace longhaul {
namespace {

using namespace conformance;

constexpr double kInf = std::numeric_limits<double>::infinity();

bool close(double actual, double expected) {
  if (std::isnan(expected)) return std::isnan(actual);
  return actual == expected || std::fabs(actual - expected) <= 1e-11 * (1 + std::fabs(expected));
}

// Attention straight from its definition, for one row: no tiles, no groups, no shared code with the oracle.
struct NaiveRow {
  std::vector<double> output;
  double lse;
};
NaiveRow naive_row(const AttentionCase& test, int request, int64_t query, int head) {
  const AttentionArgs& args = test.args;
  const int64_t q_len = test.q_lengths[request], kv_len = test.kv_lengths[request], d = test.spec.d,
                dv = test.spec.dv();
  int64_t token = query;
  for (int b = 0; b < request; ++b) token += test.q_lengths[b];
  const int head_kv = head / test.spec.group;
  const auto scale_of = [](const TensorView& view, int h) {
    return view.given() ? double{static_cast<const float*>(view.data)[view.shape[0] == 1 ? 0 : h]} : 1.0;
  };
  const double softmax_scale =
      args.softmax_scale > 0 ? args.softmax_scale : static_cast<float>(1 / std::sqrt(double(d)));
  const double scale = softmax_scale * scale_of(args.query_scale, head) * scale_of(args.key_scale, head_kv);
  const int64_t position = kv_len - q_len + query;
  double mass = 0, max = -kInf;
  std::vector<double> scores(kv_len, -kInf);
  std::vector<bool> sees(kv_len);
  for (int64_t j = 0; j < kv_len; ++j) {
    sees[j] = (!args.causal || j <= position) && (args.window_left < 0 || j >= position - args.window_left);
    if (!sees[j]) continue;
    double dot = 0;
    for (int64_t c = 0; c < d; ++c)
      dot += double{load_as_float(args.query.data, args.query.dtype,
                                  token * args.query.stride[0] + head * args.query.stride[1] + c)} *
             test.get(args.key, request, j, head_kv, static_cast<int>(c));
    scores[j] = args.soft_cap > 0 ? args.soft_cap * std::tanh(scale * dot / args.soft_cap) : scale * dot;
    max = std::isnan(scores[j]) || scores[j] > max ? scores[j] : max;
  }
  NaiveRow row{std::vector<double>(dv, 0.0), -kInf};
  if (max == -kInf) return row;
  for (int64_t j = 0; j < kv_len; ++j) {
    if (!sees[j]) continue;
    const double weight = std::exp(scores[j] - max);
    mass += weight;
    for (int64_t c = 0; c < dv; ++c)
      row.output[c] += weight * test.get(args.value, request, j, head_kv, static_cast<int>(c));
  }
  if (args.sinks.given()) mass += std::exp(static_cast<const float*>(args.sinks.data)[head] - max);
  for (double& x : row.output) x *= scale_of(args.value_scale, head_kv) / mass;
  row.lse = max + std::log(mass);
  return row;
}

class DenseReference : public ::testing::TestWithParam<int> {};

TEST_P(DenseReference, EqualsTheDefinition) {
  CaseSpec spec = random_spec(GetParam());
  spec.poison = Poison::none;
  if (spec.lambda != Lambdas::none) spec.lambda = Lambdas::zero;
  if (spec.long_keys > 0) spec.long_keys = 1100;  // two decode splits
  AttentionCase test(spec);
  ReferenceOptions options;
  options.phase = spec.phase;
  options.geometry = attention_geometry(test.args, spec.phase);
  const ReferenceResult result = reference_attention(test.args, options);
  int64_t token = 0;
  for (size_t b = 0; b < test.q_lengths.size(); ++b)
    for (int64_t i = 0; i < test.q_lengths[b]; ++i, ++token)
      for (int h = 0; h < test.heads_q(); ++h) {
        const NaiveRow row = naive_row(test, static_cast<int>(b), i, h);
        ASSERT_TRUE(close(result.lse[h * test.total_q + token], row.lse))
            << spec.describe() << " lse " << token << " " << h;
        for (int c = 0; c < spec.dv(); ++c)
          ASSERT_TRUE(close(result.output[(token * test.heads_q() + h) * spec.dv() + c], row.output[c]))
              << spec.describe() << " output " << token << " " << h << " " << c;
      }
  int64_t skipped = 0;
  for (size_t i = 1; i < result.counters.size(); i += 4) skipped += result.counters[i];
  EXPECT_EQ(skipped, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DenseReference, ::testing::Range(1, 1 + testing::rounds(6, 24, 200)));

// Four tiles of two blocks of one key, one query that sees all. Scores by key: 0 5 | 9 1 | 2 8 | 3 4.
struct EightKeys : ScoreCase {
  EightKeys() : ScoreCase({0, 5, 9, 1, 2, 8, 3, 4}, 1) {
    options.geometry = {2, 1, 1};
    args.lambda = Lambda::scalar(std::exp(-3.5F));
  }
};

TEST(ReferenceRule, MaxNewestFirst) {
  // Newest tile (3, 4) runs: max 4. Tile (2, 8): max 8, drop 2. Tile (9, 1): max 9, drop 1. Tile (0, 5): drop both (-9,
  // -4).
  const ReferenceResult result = EightKeys().oracle();
  EXPECT_EQ(mask_text(result.skip_mask), "22122111");
  EXPECT_EQ(result.counters, (std::vector<int64_t>{8, 4, 0, 0}));
  const double mass = std::exp(9) + std::exp(8) + std::exp(3) + std::exp(4);
  EXPECT_TRUE(close(result.lse[0], std::log(mass)));
  EXPECT_TRUE(close(result.output[0], (3 * std::exp(9) + 6 * std::exp(8) + 7 * std::exp(3) + 8 * std::exp(4)) / mass));
}

TEST(ReferenceRule, MaxAscending) {
  // Tile (0, 5) runs: max 5. (9, 1): max 9, drop 1. (2, 8): drop 2. (3, 4): drop both (-6, -5).
  EightKeys test;
  test.options.order = VisitOrder::ascending;
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "11122122");
}

TEST(ReferenceRule, SumNewestFirst) {
  // Ten keys of score 0 in the newest tile: ln 10 = 2.30 of mass. The next tile's block at -1 lies 3.40 below ln(10 +
  // e^0), the tile's other block of 0 lies 2.40 below. Under rule max the differences are 1 and 0.
  std::vector<float> scores(20, 0.0F);
  scores[0] = -1;
  for (int j = 1; j < 9; ++j) scores[j] = -9;
  scores[9] = 0;
  ScoreCase test(scores, 1);
  test.options.geometry = {10, 1, 1};
  test.args.lambda = Lambda::scalar(std::exp(-3.0F));
  test.args.rule = SkipRule::sum;
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "22222222211111111111");
  test.args.lambda = Lambda::scalar(std::exp(-3.5F));
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "12222222211111111111");
  test.args.rule = SkipRule::max;
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "12222222211111111111");
  test.args.lambda = Lambda::scalar(std::exp(-0.5F));
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "22222222211111111111");
}

TEST(ReferenceRule, SumCountsOnlyKeptMass) {
  // Tiles of one key, newest first: 0, then 50 keys at -2.9. Kept under rule max never changes the reference (0); under
  // the sum rule kept keys raise it until ln(mass) reaches about 0.1 above, then -2.9 falls below and stays dropped:
  // mass stops growing.
  std::vector<float> scores(51, -2.9F);
  scores[50] = 0;
  ScoreCase test(scores, 1);
  test.options.geometry = {1, 1, 1};
  test.args.lambda = Lambda::scalar(std::exp(-3.0F));
  EXPECT_EQ(test.oracle().counters[1], 0);
  test.args.rule = SkipRule::sum;
  // Reference at the first: ln(1 + e^-2.9) = 0.0536: kept (2.95 < 3). Then ln(1 + 2 e^-2.9) = 0.1045: dropped, as are
  // all others.
  EXPECT_EQ(test.oracle().counters[1], 49);
}

TEST(ReferenceRule, EveryRowOfTheGroupMustVote) {
  // Two heads of one KV head, decode: the second head's scores are all 0, so it never votes.
  ScoreCase test({0, 5, 9, 1, 2, 8, 3, 4}, 1, 2, 1, Phase::decode);
  test.options.geometry = {2, 1, 0};
  test.args.lambda = Lambda::scalar(std::exp(-3.5F));
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "22122111");
  test.query(0, 1) = 0;
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "11111111");
}

TEST(ReferenceRule, RowsThatDoNotSeeTheBlockHaveNoVote) {
  // Two queries at positions 6 and 7 see keys 3..6 and 4..7. The second one's scores are all 0, so it objects to every
  // block it sees; key 3 concerns the first one alone.
  ScoreCase test({0, 0, 0, 0, 0, 0, 9, 0}, 2);
  test.query(1, 0) = 0;
  test.args.window_left = 3;
  test.options.geometry = {2, 1, 8};
  test.args.lambda = Lambda::scalar(0.5F);
  const ReferenceResult result = test.oracle();
  EXPECT_EQ(mask_text(result.skip_mask), "00021111");
  EXPECT_EQ(result.counters[0], 8);
  EXPECT_EQ(result.counters[1], 1);
}

TEST(ReferenceRule, LambdaPerHeadInDecode) {
  ScoreCase test({-5, 0}, 1, 2, 1, Phase::decode);
  test.options.geometry = {1, 1, 0};
  test.set_lambdas({0.1F, 0.1F});
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "21");
  test.set_lambdas({0.1F, 0.001F});  // -5 > ln 0.001: the second head objects
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "11");
  test.set_lambdas({0.0F, 0.1F});  // 0 never skips
  EXPECT_EQ(mask_text(test.oracle().skip_mask), "11");
}

TEST(ReferenceRule, ScoresThatAreNotFiniteAreKept) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    EightKeys test;
    test.key(3) = bad;  // score 1: dropped when finite
    const ReferenceResult result = test.oracle();
    EXPECT_EQ(result.skip_mask[3], 1);
    EXPECT_EQ(std::isnan(result.output[0]), bad != -std::numeric_limits<float>::infinity());
    // A reference that is NaN or +inf drops nothing any more.
    const bool poisons = bad != -std::numeric_limits<float>::infinity();
    EXPECT_EQ(mask_text(result.skip_mask), poisons ? "11112111" : "22112111") << bad;
  }
}

TEST(ReferenceRule, LastPartsOfDecodeStartFromTheNewestTile) {
  // 2,048 keys make two parts of one request with one head. The newest tile holds the largest score, so a part that
  // started from nothing would keep its own first tile; one that starts from the newest tile drops everything.
  std::vector<float> scores(2048, 0.0F);
  scores[2047] = 9;
  ScoreCase test(scores, 1, 1, 1, Phase::decode);
  test.args.lambda = Lambda::scalar(0.01F);
  for (bool splits : {true, false}) {
    test.options.kernel_splits = splits;
    const ReferenceResult result = test.oracle();
    EXPECT_EQ(result.counters[0], 2048);
    EXPECT_EQ(result.counters[1], 2048 - 64);
    EXPECT_EQ(result.counters[2], (2048 - 64) * 64 * 4);
  }
}

TEST(Reference, TellsItsProgressOneGroupAtATime) {
  ScoreCase test(std::vector<float>(100, 0.0F), 100, 3);  // 7 groups of 16 rows for each of 3 heads
  int64_t last = 0;
  test.options.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(done, ++last);
    EXPECT_EQ(total, 21);
  };
  test.oracle();
  EXPECT_EQ(last, 21);
}

TEST(Reference, DroppedMassIsTheShareOfTheDenseSoftmax) {
  EightKeys test;
  test.options.measure_dropped_mass = true;
  double all = 0, dropped = 0;
  for (double s : {0, 5, 9, 1, 2, 8, 3, 4}) all += std::exp(s);
  for (double s : {0, 5, 1, 2}) dropped += std::exp(s);
  EXPECT_TRUE(close(test.oracle().dropped_mass[0], dropped / all));
}

TEST(Reference, NothingToSeeGivesZeroAndMinusInfinityEvenWithASink) {
  ScoreCase test({1, 2}, 4);
  std::vector<float> sinks{3};
  test.args.sinks = TensorView(sinks.data(), DType::f32, {1});
  const ReferenceResult result = test.oracle();  // positions -2 .. 1
  for (int row : {0, 1}) {
    EXPECT_EQ(result.lse[row], -kInf);
    EXPECT_EQ(result.output[row * 64], 0);
  }
  EXPECT_TRUE(close(result.lse[3], std::log(std::exp(1) + std::exp(2) + std::exp(3))));
  EXPECT_EQ(result.mask_shape.groups, 2);  // positions -16..-1 and 0..15
}

TEST(Reference, WeightZeroTimesInfinityIsNan) {
  ScoreCase test({-2000, 0}, 1);  // exp(-2000) is 0 in double
  test.value(0, 0, 1) = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(test.oracle().output[1]));
  test.args.window_left = 0;  // the row does not see the key
  EXPECT_EQ(test.oracle().output[1], 0);
}

TEST(Reference, CountsDecisionsCloserThanTheGivenError) {
  ScoreCase test({-5, 0}, 1);
  test.options.geometry = {1, 1, 1};
  test.args.lambda = Lambda::scalar(std::exp(-4.9F));
  EXPECT_EQ(test.oracle().ambiguous, 0);
  test.options.decision_error = 0.05;
  EXPECT_EQ(test.oracle().ambiguous, 0);
  test.options.decision_error = 0.2;
  EXPECT_EQ(test.oracle().ambiguous, 1);
}

TEST(Reference, RefusesGeometryThatIsNone) {
  ScoreCase test({0, 0}, 1);
  for (Geometry g : {Geometry{16, 0, 1}, Geometry{16, 12, 1}, Geometry{8, 16, 1}, Geometry{16, 16, 0}}) {
    test.options.geometry = g;
    EXPECT_THROW(test.oracle(), InvalidArgument);
  }
}

TEST(Reference, RefusesTilesThatTheKeySplitsWouldCut) {
  ScoreCase test(std::vector<float>(2048, 0.0F), 1, 1, 1, Phase::decode);
  for (Geometry g : {Geometry{128, 128, 0}, Geometry{96, 16, 0}}) {
    test.options.geometry = g;
    test.options.kernel_splits = true;
    EXPECT_THROW(test.oracle(), Unsupported);
    test.options.kernel_splits = false;
    EXPECT_NO_THROW(test.oracle());
  }
}

}  // namespace
}  // namespace longhaul
