#include <gtest/gtest.h>

#include <cmath>

#include "attention/config/config_errors_test.h"
#include "longhaul/config.h"

namespace longhaul {
namespace {

LonghaulConfig sample_config() {
  PhaseConfig prefill;
  prefill.geometry = {.tile_keys = 64, .block_keys = 16, .group_rows = 16};
  prefill.law.alpha = 1.25;
  prefill.law.beta = 2.5;
  prefill.law.exponent = 0.4;
  prefill.target_sparsity = 0.5;
  prefill.fitted_target_sparsity = {0.1, 0.9};
  prefill.fitted_context_length = {2048, 8192};
  LambdaLaw dense, layer;
  dense.coefficient = 0;
  layer.coefficient = 12.5;
  prefill.overrides = {{3, {}, layer}, {3, 1, dense}};
  PhaseConfig decode = prefill;
  decode.rule = SkipRule::sum;
  decode.order = VisitOrder::ascending;
  decode.geometry.group_rows = 0;
  decode.overrides.clear();
  decode.target_sparsity.reset();
  decode.law = layer;
  LonghaulConfig config;
  config.model = "a \"model\": # with\n traps \\";
  config.samples = "Pride and Prejudice, 8,192 tokens";
  config.phases = {prefill, decode};
  return config;
}

TEST(LonghaulYaml, RoundTrip) {
  const LonghaulConfig config = sample_config();
  EXPECT_EQ(parse_longhaul_yaml(to_longhaul_yaml(config), "l"), config) << to_longhaul_yaml(config);
}

TEST(LonghaulYaml, LambdaFollowsTheMostSpecificLaw) {
  const LonghaulConfig config = sample_config();
  const double law = std::exp(1.25) * std::pow(4096, -0.4);  // logit(0.5) = 0
  EXPECT_FLOAT_EQ(config.lambda_for(Phase::prefill, 0, 0, 4096), static_cast<float>(law));
  EXPECT_FLOAT_EQ(config.lambda_for(Phase::prefill, 3, 0, 4096), 12.5F / 4096);
  EXPECT_EQ(config.lambda_for(Phase::prefill, 3, 1, 4096), 0.0F);
  EXPECT_FLOAT_EQ(config.lambda_for(Phase::decode, 3, 1, 4096), 12.5F / 4096);
  EXPECT_EQ(config.lambda_for(Phase::decode, 3, 1, 5, true), 1.0F) << "capped";
  expect_message(error_of([&] { config.lambda_for(Phase::decode, 3, 1, 5); }),
                 "context_length is 5; the decode law was fitted over 2048", "");
  EXPECT_THROW(config.lambda_for(Phase::decode, -1, 1, 4096), InvalidArgument);
  EXPECT_THROW(config.lambda_for(Phase::decode, 0, 0, 0, true), InvalidArgument);
  LonghaulConfig half = config;
  half.phases.decode.reset();
  EXPECT_THROW(half.lambda_for(Phase::decode, 0, 0, 4096), InvalidArgument);
}

TEST(LonghaulYaml, CalibrationHoldsForOneRuleOrderAndGeometry) {
  const LonghaulConfig config = sample_config();
  const Geometry geometry{64, 16, 16};
  EXPECT_NO_THROW(config.check_calibrated_for(Phase::prefill, SkipRule::max, VisitOrder::newest_first, geometry));
  EXPECT_THROW(config.check_calibrated_for(Phase::prefill, SkipRule::sum, VisitOrder::newest_first, geometry),
               InvalidArgument);
  EXPECT_THROW(config.check_calibrated_for(Phase::prefill, SkipRule::max, VisitOrder::ascending, geometry),
               InvalidArgument);
  EXPECT_THROW(config.check_calibrated_for(Phase::prefill, SkipRule::max, VisitOrder::newest_first, {128, 128, 64}),
               InvalidArgument);
}

std::string own(const std::string& change_from = "", const std::string& change_to = "") {
  std::string text =
      "version: 1\nprefill:\n  rule: max\n  key_test: exact\n  order: newest_first\n"
      "  geometry: {tile_keys: 64, block_keys: 16, group_rows: 16}\n  target_sparsity: 0.5\n"
      "  fitted_target_sparsity: [0.1, 0.9]\n  fitted_context_length: [2048, 8192]\n  law: {alpha: 1, beta: 2, "
      "exponent: 1}\n";
  if (!change_from.empty()) text.replace(text.find(change_from), change_from.size(), change_to);
  return text;
}

TEST(LonghaulYaml, EachMistakeGivesOneSentence) {
  EXPECT_EQ(error_of([] { parse_longhaul_yaml(own(), "l.yaml"); }), "");
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"version: 1\n", "", "has no version"},
      {"version: 1", "version: 2", "version is 2; this library reads version 1"},
      {"version: 1", "version: 1\nmodle: x",
       "unknown key 'modle'; allowed are version, model, samples, prefill, decode"},
      {"rule: max", "rule: mean", "prefill.rule is 'mean'; allowed are max, sum"},
      {"rule: max", "rule: [max]", "prefill.rule is a list; it must be a string"},
      {"exact", "certified", "key_test is 'certified'; allowed are exact"},
      {"newest_first", "oldest_first", "allowed are newest_first, ascending"},
      {"block_keys: 16", "block_keys: 0", "geometry.block_keys is 0; allowed are integers from 1"},
      {"block_keys: 16", "block_keys: 1.5", "geometry.block_keys is 1.5; allowed are integers from 1"},
      {"block_keys: 16", "block_keys: 48", "a tile must be a multiple of a block"},
      {"group_rows: 16", "group_rows: 0", "geometry.group_rows is 0; allowed are integers >= 1"},
      {"block_keys: 16, ", "", "geometry has no block_keys"},
      {"target_sparsity: 0.5", "target_sparsity: 0.05", "within the fitted range [0.1, 0.9]"},
      {"target_sparsity: 0.5", "target_sparsity: 5", "target_sparsity is 5; allowed are 0 to 1"},
      {"  target_sparsity: 0.5\n", "", "target_sparsity is missing"},
      {"[0.1, 0.9]", "[0.9, 0.1]", "low must not exceed high"},
      {"[0.1, 0.9]", "[0.1]", "has 1 entries; it must be [low, high]"},
      {"[2048, 8192]", "[0, 8192]", "fitted_context_length[0] is 0"},
      {"alpha: 1, ", "", "has no alpha"},
      {"alpha: 1", "coefficient: 1", "must hold either coefficient, or alpha and beta"},
      {"alpha: 1", "alpha: .inf", "law.alpha is .inf; it must be finite"},
      {"beta: 2", "beta: -2", "law.beta is -2; allowed are finite numbers >= 0"},
      {"exponent: 1", "exponent: -1", "law.exponent is -1"},
      {"exponent: 1}", "exponent: 1}\n  overrides: [{layer: 0, coefficient: 1}, {layer: 0, coefficient: 2}]",
       "overrides[1] repeats"},
      {"exponent: 1}", "exponent: 1}\n  overrides: [{head: 0, coefficient: 1}]", "overrides[0] has no layer"},
      {"exponent: 1}", "exponent: 1}\n  overrides: [{layer: -1, coefficient: 1}]", "overrides[0].layer is -1"},
      {"exponent: 1}", "exponent: 1}\n  overrides: [{layer: 0}]", "overrides[0] must hold either"},
      {"exponent: 1}", "exponent: 1}\n  overrides: 7", "overrides is 7; it must be a list"},
      {"prefill:", "decode: 4\nprefill:", "decode is 4; it must be a map"},
  };
  for (const auto& [from, to, part] : cases) {
    const std::string text = own(from, to);
    const std::string message = error_of([&] { parse_longhaul_yaml(text, "l.yaml"); });
    expect_message(message, part, text);
    expect_message(message, "l.yaml", text);
  }
  expect_message(error_of([] { parse_longhaul_yaml("version: 1\n", "l"); }), "neither prefill nor decode", "");
}

TEST(LonghaulYaml, WritingChecksToo) {
  LonghaulConfig config = sample_config();
  config.phases.prefill->law.alpha = NAN;
  EXPECT_THROW(to_longhaul_yaml(config), InvalidArgument);
  config = sample_config();
  config.phases.prefill->overrides[0].law.coefficient = -1;
  EXPECT_THROW(to_longhaul_yaml(config), InvalidArgument);
}

}  // namespace
}  // namespace longhaul
