#include "attention/testing/case_spec.h"

#include <fmt/format.h>

#include <span>

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

constexpr DtypeChoice kCudaDtypes[] = {
    {DType::bf16, DType::bf16, DType::bf16, Scales::none},
    {DType::f16, DType::f16, DType::f16, Scales::none},
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

constexpr LayoutChoice kCudaLayouts[] = {
    {Layout::tokens_first, 0}, {Layout::heads_first, 0},  {Layout::padded, 0},
    {Layout::paged_nhd, 16},   {Layout::paged_hnd, 48},   {Layout::paged_pool, 64},
    {Layout::paged_hnd, 128},  {Layout::paged_pool, 176}, {Layout::paged_nhd, 256},
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

// What the kernels of a device support.
struct Choices {
  Device device;
  int phases;  // prefill, decode, decode batch-invariant
  std::span<const DtypeChoice> dtypes;
  std::span<const int> head_sizes;
  std::span<const LayoutChoice> layouts;
  int lengths;
  std::span<const int> threads;
};
constexpr Choices kOnCpu{Device::cpu, 3, kDtypes, kHeadSizes, kLayouts, 5, kThreads};
constexpr Choices kOnCuda{Device::cuda, 3, kCudaDtypes,           std::span(kHeadSizes, 2),
                          kCudaLayouts, 6, std::span(kThreads, 1)};

template <class T>
int count(std::span<const T> choices) {
  return static_cast<int>(choices.size());
}

// The order of the factors below and in make_spec is the same.
std::vector<int> levels_of(const Choices& choices) {
  return {choices.phases,
          count(choices.dtypes),
          count(choices.head_sizes),
          count(kHeads),
          4,  // masking
          2,
          2,  // soft cap, sinks
          count(choices.layouts),
          choices.lengths,
          count(kLambdas),
          count(choices.threads),
          2,   // padded output
          5,   // poison: none twice
          2};  // own scale
}

CaseSpec make_spec(const Choices& choices, const std::vector<int>& row, uint64_t seed) {
  CaseSpec spec;
  size_t i = 0;
  spec.seed = seed;
  spec.device = choices.device;
  spec.phase = row[i] == 0 ? Phase::prefill : Phase::decode;
  spec.batch_invariant = row[i++] == 2;
  const DtypeChoice& dtypes = choices.dtypes[row[i++]];
  spec.query = dtypes.query;
  spec.kv = dtypes.kv;
  spec.output = dtypes.output;
  spec.scales = dtypes.scales;
  spec.d = choices.head_sizes[row[i++]];
  spec.heads_kv = kHeads[row[i]].heads_kv;
  spec.group = kHeads[row[i++]].group;
  spec.masking = static_cast<Masking>(row[i++]);
  spec.soft_cap = row[i++] == 1;
  spec.sinks = row[i++] == 1;
  spec.layout = choices.layouts[row[i]].layout;
  spec.page_size = choices.layouts[row[i++]].page_size;
  spec.lengths = static_cast<Lengths>(row[i++]);
  spec.lambda = kLambdas[row[i]].lambda;
  spec.rule = kLambdas[row[i++]].rule;
  spec.threads = choices.threads[row[i++]];
  spec.padded_output = row[i++] == 1;
  spec.poison = row[i] >= 3 ? static_cast<Poison>(0) : static_cast<Poison>(row[i] + 1);
  ++i;
  spec.own_scale = row[i] == 1;
  // Splits start at 1,024 keys a part, in the batch-invariant mode at 4,096.
  if (spec.phase == Phase::decode) spec.long_keys = spec.batch_invariant ? 4500 : 2300;
  return spec;
}

constexpr const char* kLengthNames[] = {"single", "ragged", "chunked", "extreme", "more-queries", "tiles"};
constexpr const char* kLayoutNames[] = {"tokens-first", "heads-first", "padded",
                                        "paged-nhd",    "paged-hnd",   "paged-pool"};
constexpr const char* kMaskingNames[] = {"causal", "full", "causal-window", "full-window"};
constexpr const char* kScaleNames[] = {"none", "tensor", "head"};
constexpr const char* kLambdaNames[] = {"none", "zero", "low", "middle", "one", "per-head", "per-request"};
constexpr const char* kPoisonNames[] = {"none", "query", "key", "value"};

}  // namespace

std::string CaseSpec::describe() const {
  return fmt::format(
      "{}{}{} q={} kv={} out={} scales={} d={} heads={}x{} {}{}{}{} {} page={} lengths={} lambda={} rule={} "
      "threads={}{} "
      "poison={} seed={}",
      device == Device::cuda ? "cuda " : "", phase == Phase::prefill ? "prefill" : "decode",
      batch_invariant ? " batch-invariant" : "", dtype_name(query), dtype_name(kv), dtype_name(output),
      kScaleNames[static_cast<int>(scales)], d, heads_kv, group, kMaskingNames[static_cast<int>(masking)],
      soft_cap ? " soft-cap" : "", sinks ? " sinks" : "", own_scale ? " own-scale" : "",
      kLayoutNames[static_cast<int>(layout)], paged() ? page_size : 0, kLengthNames[static_cast<int>(lengths)],
      kLambdaNames[static_cast<int>(lambda)], rule == SkipRule::max ? "max" : "sum", threads,
      padded_output ? " padded-output" : "", kPoisonNames[static_cast<int>(poison)], seed);
}

std::vector<CaseSpec> pairwise_specs(uint64_t seed, Device device) {
  const Choices& choices = device == Device::cuda ? kOnCuda : kOnCpu;
  Random random(seed);
  std::vector<CaseSpec> specs;
  for (const std::vector<int>& row : covering_array(levels_of(choices), random.bits()))
    specs.push_back(make_spec(choices, row, random.bits()));
  return specs;
}

CaseSpec random_spec(uint64_t seed) {
  Random random(seed);
  std::vector<int> row;
  for (int levels : levels_of(kOnCpu)) row.push_back(static_cast<int>(random.integer(0, levels - 1)));
  return make_spec(kOnCpu, row, random.bits());
}

}  // namespace longhaul::conformance
