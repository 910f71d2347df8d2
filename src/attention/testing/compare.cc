#include "attention/testing/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "attention/cpu/kernels.h"
#include "attention/sm90/multiprocessors.h"
#include "attention/testing/random.h"
#include "attention/tile_plan.h"

// Error of the kernels' arithmetic.
//
// Inputs are exact in both. u = 2^-24 is fp32's unit roundoff; n the keys, t = n/64 + 1 the tiles a row sees.
//
// Scores. The scaled query is rounded (scale factors: 4 roundings), then d products are summed in some order: at most
// d more. |ds| <= (d + 8) u S with S = scale |q| |k|. A soft cap adds tanh's relative error of 3e-7 (5 u) and a
// product: 8 u cap.
//
// Weights exp(s - m), computed as 2^x: the argument's rounding u |s - m| log2(e) <= 3 u S and the polynomial's 2 u, so
// a relative error of at most E = |ds| + 6 u S + 6 u. (m's own error cancels between numerator and denominator.)
//
// Sums. Adding n terms one after the other: n u. Every tile may rescale by another 2^x (and a final merge of at most
// 64 parts does): 4 u each. So numerator and denominator each have a relative error of at most R = E + (n + 4 t + 256)
// u, the numerator's relative to A = sum of weight |v|, and the output's absolute error is at most 2 R A + 4 u |out|.
//
// Rounding to the output's dtype: half a unit in the last place of |out| + error.
//
// log-sum-exp: the sum's relative error R, and 4 u |lse| for ln and the final addition.
//
// A decision compares block_max - m_ref with ln(lambda): twice |ds|, 4 u of S and of ln(lambda) for the subtractions,
// under rule sum also R's part of the sums.
//
// On a CUDA device the tensor cores truncate where they align the d products: |ds| doubles. 2^x comes from the
// special-function unit, right to 2^-22 (4 u), and so does the logarithm of rule sum; the soft cap is right to 24 u.
// The weights are rounded to the dtype of the values for P.V, to 2^-8 of each in bfloat16, to 2^-11 or 2^-25 in
// float16.

namespace longhaul::conformance {
namespace {

constexpr double kU = 0x1p-24;
constexpr int kMaxRedraws = 60;

bool on_cuda(const AttentionCase& test) { return test.spec.device == Device::cuda; }

double score_factor(const CaseSpec& spec) { return (spec.device == Device::cuda ? 2 : 1) * (spec.d + 8) * kU; }
double cap_error(const AttentionCase& test) { return (on_cuda(test) ? 24 : 8) * kU * test.args.soft_cap; }

// What rounding the weights to the dtype of the values adds on a CUDA device, by the sum of weight |v| and the keys.
double weight_rounding(const AttentionCase& test, double abs_output, double keys) {
  if (!on_cuda(test)) return 0;
  if (test.spec.kv == DType::bf16) return 0x1p-8 * abs_output;
  constexpr double kLargestValue = 8;  // of values drawn from N(0, 1)
  return 0x1p-11 * abs_output + keys * 0x1p-25 * kLargestValue;
}

// Of the kernels on matrix tiles.
constexpr double kTileWeightError = 3e-6, kTileRounding = 0x1p-8, kTileSubnormal = 0x1p-126;

bool on_tiles(const AttentionCase& test) {
  return test.spec.phase == Phase::prefill && selected_isa() >= Isa::amx &&
         prefill_on_tiles(test.spec.query, test.spec.kv);
}

double sum_error(double keys) { return (keys + 4 * (keys / 64 + 1) + 256) * kU; }

// R above, for a row whose scores have size S and that sees `keys` keys at most.
double relative_error(const AttentionCase& test, double score_size, double keys) {
  const double score = score_factor(test.spec) * score_size + cap_error(test);
  return score + 6 * kU * score_size + (on_cuda(test) ? 12 : 6) * kU + sum_error(keys) +
         (on_tiles(test) ? kTileWeightError : 0);
}

double half_ulp(DType dtype, double magnitude) {
  switch (dtype) {
    case DType::f16:
      return std::max(magnitude * 0x1p-11, 0x1p-25);
    case DType::bf16:
      return std::max(magnitude * 0x1p-8, 0x1p-134);
    default:
      return std::max(magnitude * kU, 0x1p-140);
  }
}

// NaN and infinities must match exactly, finite values within the error.
bool agree(double actual, double expected, double error) {
  if (actual == expected) return true;
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return false;
  return std::fabs(actual - expected) <= error;
}

std::string compare_mask(const AttentionCase& test, const ReferenceResult& oracle) {
  const SkipMaskShape& shape = oracle.mask_shape;
  for (int64_t h = 0; h < shape.voting_heads; ++h)
    for (int64_t g = 0; g < shape.groups; ++g)
      for (int64_t b = 0; b < shape.blocks; ++b) {
        const int actual = static_cast<int>(test.skip_mask.at({h, g, b}));
        const int expected = oracle.skip_mask[(h * shape.groups + g) * shape.blocks + b];
        if (actual != expected)
          return fmt::format("skip_mask[{}, {}, {}] is {}, the oracle says {}", h, g, b, actual, expected);
      }
  return {};
}

std::string compare_counters(const AttentionCase& test, const ReferenceResult& oracle) {
  const bool decode = test.spec.phase == Phase::decode;
  for (int64_t h = 0; h < oracle.mask_shape.voting_heads; ++h)
    for (int64_t kind = 0; kind < 4; ++kind) {
      if (kind == 2 && !decode) continue;  // prefill shares V reads in a way of its own
      const auto actual = static_cast<int64_t>(test.counters.at({h, kind}));
      const int64_t expected = oracle.counters[h * 4 + kind];
      if (actual != expected)
        return fmt::format("counters[{}, {}] is {}, the oracle says {}", h, kind, actual, expected);
    }
  return {};
}

std::string compare_row(const AttentionCase& test, const ReferenceResult& oracle, int64_t token, int64_t head,
                        double keys) {
  const int64_t heads = test.heads_q(), dv = test.spec.dv(), at = head * test.total_q + token;
  const double relative = relative_error(test, oracle.score_size[at], keys);
  if (test.args.lse.given()) {
    const double actual = test.lse.at({head, token}), expected = oracle.lse[at];
    const double error = relative + 4 * kU * std::fabs(expected);
    if (!agree(actual, expected, error))
      return fmt::format("lse[{}, {}] is {}, the oracle says {} +- {:.2g}", head, token, actual, expected, error);
  }
  for (int64_t c = 0; c < dv; ++c) {
    const int64_t i = (token * heads + head) * dv + c;
    const double actual = test.output.at({token, head, c}), expected = oracle.output[i];
    double error = 2 * relative * oracle.abs_output[i] + 4 * kU * std::fabs(expected);
    if (on_tiles(test)) error += kTileRounding * oracle.abs_output[i] + kTileSubnormal;
    error += weight_rounding(test, oracle.abs_output[i], keys);
    error += half_ulp(test.spec.output, std::fabs(expected) + error);
    if (!agree(actual, expected, error))
      return fmt::format("output[{}, {}, {}] is {}, the oracle says {} +- {:.2g}", token, head, c, actual, expected,
                         error);
  }
  return {};
}

}  // namespace

ReferenceOptions oracle_options(const AttentionCase& test) {
  ReferenceOptions options;
  options.phase = test.spec.phase;
  options.geometry = test.geometry();
  options.measure_sizes = true;
  options.score_error = score_factor(test.spec) + 4 * kU;
  const double longest = static_cast<double>(*std::max_element(test.kv_lengths.begin(), test.kv_lengths.end()));
  constexpr double kLogLambda = 8;  // |ln| of the smallest lambda that is drawn
  options.decision_error = 2 * cap_error(test) + (4 * kLogLambda + (on_cuda(test) ? 64 : 8)) * kU;
  if (on_cuda(test) && options.phase == Phase::decode) options.sm90_multiprocessors = usable_multiprocessors();
  if (test.args.rule == SkipRule::sum) options.decision_error += sum_error(longest) + 2 * kTileWeightError;
  return options;
}

std::string compare(const AttentionCase& test, const ReferenceResult& oracle) {
  for (const auto& [name, result] :
       {std::pair{"output", &test.output}, {"lse", &test.lse}, {"counters", &test.counters}})
    if (!result->guards_intact()) return fmt::format("bytes between the elements of {} were overwritten", name);
  if (test.args.skip_mask.given())
    if (std::string difference = compare_mask(test, oracle); !difference.empty()) return difference;
  if (test.args.counters.given())
    if (std::string difference = compare_counters(test, oracle); !difference.empty()) return difference;
  int64_t token = 0;
  for (size_t b = 0; b < test.q_lengths.size(); ++b)
    for (int64_t i = 0; i < test.q_lengths[b]; ++i, ++token)
      for (int64_t head = 0; head < test.heads_q(); ++head) {
        std::string difference = compare_row(test, oracle, token, head, static_cast<double>(test.kv_lengths[b]));
        if (!difference.empty()) return difference;
      }
  return {};
}

JudgedCase judged_case(CaseSpec spec) {
  Random random(spec.seed);
  for (int redraws = 0; redraws < kMaxRedraws; ++redraws) {
    AttentionCase test(spec);
    ReferenceResult oracle = reference_attention(test.args, oracle_options(test));
    if (oracle.ambiguous == 0) return {std::move(test), std::move(oracle), redraws};
    spec.seed = random.bits();
  }
  throw std::runtime_error(
      fmt::format("no case without a close decision in {} draws of: {}", kMaxRedraws, spec.describe()));
}

}  // namespace longhaul::conformance
