#include "attention/testing/case_spec.h"

#include <fmt/format.h>

#include "attention/testing/covering.h"
#include "attention/testing/random.h"

namespace longhaul::conformance {
namespace {

struct DtypeChoice {
  DType query, kv, output;
  Scales scales;
};
constexpr DtypeChoice kDtypes[] = {
    {DType::f32, DType::f32, DType::f32, Scales::none},
    {DType::f16, DType::f16, DType::f16, Scales::none},
    {DType::bf16, DType::bf16, DType::bf16, Scales::none},
    {DType::f32, DType::f8e4m3, DType::f32, Scales::head},
    {DType::f16, DType::f8e4m3, DType::f16, Scales::tensor},
    {DType::bf16, DType::f8e4m3, DType::bf16, Scales::none},
    {DType::bf16, DType::f8e4m3, DType::bf16, Scales::head},
    {DType::f8e4m3, DType::f8e4m3, DType::f32, Scales::head},
    {DType::f8e4m3, DType::f8e4m3, DType::f16, Scales::none},
    {DType::f8e4m3, DType::f8e4m3, DType::bf16, Scales::tensor},
};

struct LambdaChoice {
  Lambdas lambda;
  SkipRule rule;
};
constexpr LambdaChoice kLambdas[] = {
    {Lambdas::none, SkipRule::max},     {Lambdas::zero, SkipRule::max},        {Lambdas::zero, SkipRule::sum},
    {Lambdas::low, SkipRule::max},      {Lambdas::low, SkipRule::sum},         {Lambdas::middle, SkipRule::max},
    {Lambdas::middle, SkipRule::sum},   {Lambdas::one, SkipRule::max},         {Lambdas::per_head, SkipRule::max},
    {Lambdas::per_head, SkipRule::sum}, {Lambdas::per_request, SkipRule::max},
};

struct LayoutChoice {
  Layout layout;
  int page_size;
};
constexpr LayoutChoice kLayouts[] = {
    {Layout::tokens_first, 0}, {Layout::heads_first, 0}, {Layout::padded, 0},      {Layout::paged_nhd, 16},
    {Layout::paged_hnd, 48},   {Layout::paged_pool, 64}, {Layout::paged_nhd, 256},
};

struct HeadChoice {
  int heads_kv, group;
};
constexpr HeadChoice kHeads[] = {{3, 1}, {2, 3}, {1, 4}, {1, 16}};

constexpr int kHeadSizes[] = {64, 128, 192, 256};
constexpr int kThreads[] = {1, 2, 5};

template <class T, size_t N>
constexpr int count(const T (&)[N]) {
  return static_cast<int>(N);
}

// The order of the factors below and in make_spec is the same.
const std::vector<int> kLevels = {3,  // prefill, decode, decode batch-invariant
                                  count(kDtypes),
                                  count(kHeadSizes),
                                  count(kHeads),
                                  4,  // masking
                                  2,
                                  2,  // soft cap, sinks
                                  count(kLayouts),
                                  5,  // lengths
                                  count(kLambdas),
                                  count(kThreads),
                                  2,   // padded output
                                  5,   // poison: none twice
                                  2};  // own scale

CaseSpec make_spec(const std::vector<int>& row, uint64_t seed) {
  CaseSpec spec;
  size_t i = 0;
  spec.seed = seed;
  spec.phase = row[i] == 0 ? Phase::prefill : Phase::decode;
  spec.batch_invariant = row[i++] == 2;
  const DtypeChoice& dtypes = kDtypes[row[i++]];
  spec.query = dtypes.query;
  spec.kv = dtypes.kv;
  spec.output = dtypes.output;
  spec.scales = dtypes.scales;
  spec.d = kHeadSizes[row[i++]];
  spec.heads_kv = kHeads[row[i]].heads_kv;
  spec.group = kHeads[row[i++]].group;
  spec.masking = static_cast<Masking>(row[i++]);
  spec.soft_cap = row[i++] == 1;
  spec.sinks = row[i++] == 1;
  spec.layout = kLayouts[row[i]].layout;
  spec.page_size = kLayouts[row[i++]].page_size;
  spec.lengths = static_cast<Lengths>(row[i++]);
  spec.lambda = kLambdas[row[i]].lambda;
  spec.rule = kLambdas[row[i++]].rule;
  spec.threads = kThreads[row[i++]];
  spec.padded_output = row[i++] == 1;
  spec.poison = row[i] >= 3 ? static_cast<Poison>(0) : static_cast<Poison>(row[i] + 1);
  ++i;
  spec.own_scale = row[i] == 1;
  // Splits start at 1,024 keys a part, in the batch-invariant mode at 4,096.
  if (spec.phase == Phase::decode) spec.long_keys = spec.batch_invariant ? 4500 : 2300;
  return spec;
}

constexpr const char* kLengthNames[] = {"single", "ragged", "chunked", "extreme", "more-queries"};
constexpr const char* kLayoutNames[] = {"tokens-first", "heads-first", "padded",
                                        "paged-nhd",    "paged-hnd",   "paged-pool"};
constexpr const char* kMaskingNames[] = {"causal", "full", "causal-window", "full-window"};
constexpr const char* kScaleNames[] = {"none", "tensor", "head"};
constexpr const char* kLambdaNames[] = {"none", "zero", "low", "middle", "one", "per-head", "per-request"};
constexpr const char* kPoisonNames[] = {"none", "query", "key", "value"};

}  // namespace

std::string CaseSpec::describe() const {
  return fmt::format(
      "{}{} q={} kv={} out={} scales={} d={} heads={}x{} {}{}{}{} {} page={} lengths={} lambda={} rule={} threads={}{} "
      "poison={} seed={}",
      phase == Phase::prefill ? "prefill" : "decode", batch_invariant ? " batch-invariant" : "", dtype_name(query),
      dtype_name(kv), dtype_name(output), kScaleNames[static_cast<int>(scales)], d, heads_kv, group,
      kMaskingNames[static_cast<int>(masking)], soft_cap ? " soft-cap" : "", sinks ? " sinks" : "",
      own_scale ? " own-scale" : "", kLayoutNames[static_cast<int>(layout)], paged() ? page_size : 0,
      kLengthNames[static_cast<int>(lengths)], kLambdaNames[static_cast<int>(lambda)],
      rule == SkipRule::max ? "max" : "sum", threads, padded_output ? " padded-output" : "",
      kPoisonNames[static_cast<int>(poison)], seed);
}

std::vector<CaseSpec> pairwise_specs(uint64_t seed) {
  Random random(seed);
  std::vector<CaseSpec> specs;
  for (const std::vector<int>& row : covering_array(kLevels, random.bits()))
    specs.push_back(make_spec(row, random.bits()));
  return specs;
}

CaseSpec random_spec(uint64_t seed) {
  Random random(seed);
  std::vector<int> row;
  for (int levels : kLevels) row.push_back(static_cast<int>(random.integer(0, levels - 1)));
  return make_spec(row, random.bits());
}

}  // namespace longhaul::conformance
