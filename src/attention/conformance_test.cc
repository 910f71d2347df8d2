// Every kernel against the oracle over all pairs of contract options; and that the comparison itself has teeth.
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention/testing/compare.h"
#include "attention/testing/covering.h"
#include "attention/testing/verify.h"
#include "test_level.h"

namespace longhaul {
namespace {

using namespace conformance;

void verify(std::optional<Isa> isa) {
  VerifyOptions options;
  options.isa = isa;
  options.seed = 20;
  options.every = testing::rounds(5, 1, 1);
  options.repeat = testing::rounds(1, 1, 10);
  const VerifyReport report = run_verify(options);
  for (const VerifyFailure& f : report.failures)
    ADD_FAILURE() << f.isa << " seed " << f.seed << " case " << f.index << ": " << f.what << "\n  " << f.spec;
  EXPECT_GE(report.cases, 20);
  EXPECT_GT(report.skipped, report.visible / 10);
  std::printf("%d comparisons in %.1f s, %d redraws, sparsity %.3f\n", report.cases, report.seconds, report.redraws,
              static_cast<double>(report.skipped) / static_cast<double>(report.visible));
}

TEST(Conformance, EveryKernelAgreesWithTheOracle) { verify(std::nullopt); }
TEST(Conformance, TilesAgreeWithTheOracle) { verify(Isa::amx_emulated); }

// What only tiles do: pairs of blocks of which one is dropped, values that are not finite in a block that another pairs
// with, weights of several tiles that wait. For every head size, kind of poison and rule; the pairs above cover two of
// them at a time.
TEST(Conformance, TilesDropAndPoison) {
  std::vector<Isa> isas{Isa::amx_emulated};
  if (why_not_amx().empty()) isas.push_back(Isa::amx);
  uint64_t seed = 100;
  for (const int d : {64, 128, 192, 256})
    for (const Poison poison : {Poison::none, Poison::query, Poison::key, Poison::value})
      for (const SkipRule rule : {SkipRule::max, SkipRule::sum}) {
        CaseSpec spec;
        spec.query = spec.kv = spec.output = DType::bf16;
        spec.d = d;
        spec.group = 2;
        spec.lambda = Lambdas::middle;
        spec.rule = rule;
        spec.poison = poison;
        spec.seed = ++seed;
        JudgedCase judged = judged_case(spec);
        for (const Isa isa : isas) {
          const ScopedIsa scoped(isa);
          judged.test.run();
          EXPECT_EQ(compare(judged.test, judged.oracle), "") << isa_name(isa) << ": " << judged.test.spec.describe();
        }
      }
}

TEST(Conformance, ComparisonFindsSmallDifferences) {
  CaseSpec spec;
  spec.lambda = Lambdas::middle;
  spec.seed = 5;
  JudgedCase judged = judged_case(spec);
  judged.test.run();
  ASSERT_EQ(compare(judged.test, judged.oracle), "");
  const ReferenceResult good = judged.oracle;
  judged.oracle.output[100] += 1e-3;
  EXPECT_NE(compare(judged.test, judged.oracle).find("output["), std::string::npos);
  judged.oracle = good;
  judged.oracle.lse[3] += 1e-3;
  EXPECT_NE(compare(judged.test, judged.oracle).find("lse["), std::string::npos);
  judged.oracle = good;
  judged.oracle.skip_mask[0] ^= 3;
  EXPECT_NE(compare(judged.test, judged.oracle).find("skip_mask["), std::string::npos);
  judged.oracle = good;
  judged.oracle.counters[1] += 1;
  EXPECT_NE(compare(judged.test, judged.oracle).find("counters["), std::string::npos);
  judged.oracle = good;
  judged.oracle.output[7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(compare(judged.test, judged.oracle).find("output["), std::string::npos);
}

TEST(Covering, EveryPairOccurs) {
  const std::vector<int> levels{3, 10, 4, 2, 7, 2, 11};
  const auto rows = covering_array(levels, 3);
  for (size_t f = 0; f < levels.size(); ++f)
    for (size_t g = f + 1; g < levels.size(); ++g) {
      std::set<std::pair<int, int>> seen;
      for (const auto& row : rows) seen.emplace(row[f], row[g]);
      EXPECT_EQ(seen.size(), static_cast<size_t>(levels[f] * levels[g]));
    }
  EXPECT_LT(rows.size(), 160U);  // 110 pairs of the two largest factors are the least there can be
}

TEST(CaseSpec, SeedNamesTheCase) {
  const CaseSpec a = random_spec(17), b = random_spec(17);
  EXPECT_EQ(a.describe(), b.describe());
  AttentionCase first(a), second(b);
  first.run();
  second.run();
  EXPECT_EQ(first.output.elements(), second.output.elements());
}

}  // namespace
}  // namespace longhaul
