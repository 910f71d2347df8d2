#include "longhaul/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "longhaul/error.h"

namespace longhaul {
namespace {

using testing::Test;

// The message, which must be one line; "" when nothing is thrown.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

void expect_message(const std::string& message, const std::string& part, const std::string& input) {
  EXPECT_NE(message.find(part), std::string::npos) << input << "\ngave: " << message;
}

// --- TensorRT-LLM's YAML ---

SkipSoftmaxConfig yaml(const std::string& section) {
  return parse_trtllm_yaml("sparse_attention_config:\n  algorithm: skip_softmax\n" + section, "t.yaml");
}

TEST(TrtllmYaml, ScalarMeansBothPhases) {
  const SkipSoftmaxConfig config = yaml("  threshold_scale_factor: 1000\n");
  EXPECT_EQ(config.threshold_scale_factor.prefill, 1000.0);
  EXPECT_EQ(config.threshold_scale_factor.decode, 1000.0);
  EXPECT_FALSE(config.target_sparsity.prefill);
}

TEST(TrtllmYaml, MapsMayHoldOnePhase) {
  const SkipSoftmaxConfig config =
      yaml("  threshold_scale_factor: {prefill: 1.5e3}\n  target_sparsity:\n    decode: 0.5\n");
  EXPECT_EQ(config.threshold_scale_factor.prefill, 1500.0);
  EXPECT_FALSE(config.threshold_scale_factor.decode);
  EXPECT_EQ(config.target_sparsity.decode, 0.5);
}

TEST(TrtllmYaml, OtherTopLevelKeysBelongToTheEngine) {
  EXPECT_EQ(
      parse_trtllm_yaml("kv_cache_config:\n  dtype: fp8\nsparse_attention_config: {algorithm: skip_softmax}\n", "t"),
      SkipSoftmaxConfig{});
}

TEST(TrtllmYaml, RoundTrip) {
  SkipSoftmaxConfig config;
  config.threshold_scale_factor = {587.1800000000001, 1e-5};
  config.target_sparsity = {0.1, {}};
  config.disabled_until_timestep = 0.8;
  const std::string text = to_trtllm_yaml(config);
  EXPECT_EQ(parse_trtllm_yaml(text, "t"), config);
  EXPECT_NE(text.find("1.0e-05"), std::string::npos) << "YAML 1.1 takes 1e-05 for a string: " << text;
  config.threshold_scale_factor = {5, 5};
  EXPECT_EQ(parse_trtllm_yaml(to_trtllm_yaml(config), "t"), config);
  config.ignore = {"layer0"};
  expect_message(error_of([&] { to_trtllm_yaml(config); }), "ignore have no place", "");
  config.ignore.clear();
  config.threshold_scale_factor.prefill = NAN;
  expect_message(error_of([&] { to_trtllm_yaml(config); }), "threshold_scale_factor.prefill", "");
}

TEST(TrtllmYaml, EachMistakeGivesOneSentenceWithItsLine) {
  const std::string head = "sparse_attention_config:\n  algorithm: skip_softmax\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "the file is empty"},
      {"# only a comment\n", "the file is empty"},
      {"a: 1\n", "has no sparse_attention_config"},
      {"- 1\n", "the file is a list; it must be a map"},
      {"sparse_attention_config: 5\n", "t.yaml line 1: sparse_attention_config is 5; it must be a map"},
      {"sparse_attention_config: {}\n", "has no algorithm"},
      {"sparse_attention_config: {algorithm: dsa}\n", "algorithm is 'dsa'; supported is skip_softmax"},
      {head + "  treshold: 5\n",
       "t.yaml line 3: sparse_attention_config has the unknown key 'treshold'; allowed are algorithm, "
       "threshold_scale_factor"},
      {head + "  threshold_scale_factor: -1\n",
       "line 3: sparse_attention_config.threshold_scale_factor is -1; allowed are finite"},
      {head + "  threshold_scale_factor: .nan\n", "is .nan; it must be finite"},
      {head + "  threshold_scale_factor: -.inf\n", "is -.inf; it must be finite"},
      {head + "  threshold_scale_factor: 1e999\n", "is 1e999; it must be finite"},
      {head + "  threshold_scale_factor: many\n", "is 'many'; it must be a number or a map"},
      {head + "  threshold_scale_factor: \"5\"\n", "is '5'; it must be a number or a map"},
      {head + "  threshold_scale_factor: true\n", "is true; it must be a number or a map"},
      {head + "  threshold_scale_factor:\n", "is empty; it must be a number or a map"},
      {head + "  threshold_scale_factor: [1]\n", "is a list; it must be a number or a map"},
      {head + "  threshold_scale_factor: {}\n", "is an empty map"},
      {head + "  threshold_scale_factor: {prefil: 1}\n", "unknown key 'prefil'; allowed are prefill, decode"},
      {head + "  target_sparsity: 1.5\n", "target_sparsity is 1.5; allowed are 0 to 1"},
      {head + "  target_sparsity: {prefill: -0.5}\n", "target_sparsity.prefill is -0.5; allowed are 0 to 1"},
      {head + "  algorithm: skip_softmax\n", "line 3: the key 'algorithm' appears twice"},
      {head + "  target_sparsity: {prefill: 0.5\n", "the YAML is broken"},
      {"a: *b\n", "the YAML is broken"},
      {"a: &b 1\nc: *b\n", "line 2: an alias is used"},
      {"a: !!float 1\n", "tags are not supported"},
      {"? [1]\n: 2\n", "keys must be scalars"},
      {"a: 1\n---\nb: 1\n", "a second document starts"},
      {"\"\\n\": 1\n\"\\n\": 1\n", "the key '\\x0a' appears twice"},
      {std::string("a: \0b", 5), "holds a NUL byte"},
      {std::string(1 << 21, ' '), "at most 1048576 are read"},
      {"a: " + std::string(50000, '[') + std::string(50000, ']'), "the nesting is deeper than 16 levels"},
      {std::string(100000, '['), "t.yaml line 1: "},
      {[] {
         std::string s;
         for (int i = 0; i < 400; ++i) s += std::string(i, ' ') + "a:\n";
         return s;
       }(),
       "deeper than 16 levels"},
      {[] {
         std::string s;
         for (int i = 0; i < 5000; ++i) s += "- ";
         return s;
       }(),
       "deeper than 16 levels"},
  };
  for (const auto& [text, part] : cases) {
    expect_message(error_of([&text = text] { parse_trtllm_yaml(text, "t.yaml"); }), part, text.substr(0, 300));
  }
}

// --- the checkpoint's form ---

std::string group(const std::string& body) {
  return R"j({"architectures": ["X"], "sparse_attention_config": {"config_groups": {"group_0": {"algorithm": "skip_softmax")j" +
         body + "}}}}";
}
const char* const kFormula = R"j(, "threshold_scale_factor": {"formula": "a * exp(b * target_sparsity)",
    "prefill": {"a": 7.93, "b": 8.61}, "decode": {"a": 0.119, "b": 9.86}})j";

TEST(CheckpointJson, FormulaTargetsAndIgnore) {
  const SkipSoftmaxConfig config = parse_checkpoint_json(
      group(std::string(kFormula) + R"j(, "target_sparsity": {"prefill": 0.5, "decode": 0.3}, "targets": ["Attention"],
                                        "ignore": ["model.layers.[01].*"], "disabled_until_timestep": 0.8)j"),
      "c.json");
  ASSERT_TRUE(config.formula);
  EXPECT_NEAR(config.formula->evaluate(Phase::prefill, 0.5), 587.18, 5);
  EXPECT_NEAR(config.formula->evaluate(Phase::decode, 0.9), 852.2, 5);
  EXPECT_EQ(config.target_sparsity.decode, 0.3);
  EXPECT_EQ(config.targets, std::vector<std::string>{"Attention"});
  EXPECT_TRUE(config.ignores("model.layers.1.self_attn"));
  EXPECT_FALSE(config.ignores("model.layers.12.self_attn"));
  EXPECT_EQ(config.disabled_until_timestep, 0.8);
}

TEST(CheckpointJson, VariantsOfTheForm) {
  EXPECT_NEAR(parse_checkpoint_json(group(R"j(, "threshold_scale_factor": {"formula": "a * exp(b * target_sparsity)",
                    "coefficients": {"log_a": 2, "b": 5}})j"),
                                    "c")
                  .formula->evaluate(Phase::decode, 0.2),
              std::exp(3), 1e-9);
  EXPECT_NEAR(
      parse_checkpoint_json(group(R"j(, "threshold_scale_factor": {"formula": "exp(log_a + b * target_sparsity)",
                    "prefill": {"log_a": 2, "b": 5}})j"),
                            "c")
          .formula->evaluate(Phase::prefill, 0.2),
      std::exp(3), 1e-9);
  EXPECT_EQ(parse_checkpoint_json(group(R"j(, "threshold_scale_factor": {"prefill": 5})j"), "c")
                .threshold_scale_factor.prefill,
            5.0);
  const std::string legacy =
      R"j({"sparse_attention_config": {"producer": {"name": "modelopt", "version": "1"}, "config_groups": {
      "group_0": {"algorithm": "sparse24", "whatever": 1}, "group_1": {"algorithm": "softmax_skip", "threshold_scale_factor": 9}}}})j";
  EXPECT_EQ(parse_checkpoint_json(legacy, "c").threshold_scale_factor.decode, 9.0);
}

TEST(CheckpointJson, RoundTripKeepsTheFittedRange) {
  SkipSoftmaxConfig config =
      parse_checkpoint_json(group(std::string(kFormula) + R"j(, "target_sparsity": 0.5, "ignore": ["x\"y"])j"), "c");
  config.formula->fitted_target_sparsity = {Interval{0.1, 0.9}, Interval{0.2, 0.8}};
  const std::string text = to_checkpoint_json(config);
  EXPECT_EQ(parse_checkpoint_json(text, "c"), config);
  expect_message(error_of([&] { config.formula->evaluate(Phase::decode, 0.1); }),
                 "the formula was fitted over 0.2 to 0.8", "");
  config.target_sparsity.prefill = 2;
  EXPECT_THROW(to_checkpoint_json(config), InvalidArgument);
}

TEST(CheckpointJson, EachMistakeGivesOneSentence) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "the JSON is broken at byte"},
      {"{", "the JSON is broken at byte"},
      {"[]", "the file is a list; it must be a map"},
      {"{}", "c.json: the file has no sparse_attention_config"},
      {R"j({"sparse_attention_config": {"config_groups": {}}})j", "holds no group with algorithm skip_softmax"},
      {R"j({"sparse_attention_config": {"config_groups": {}, "x": 1}})j",
       "unknown key 'x'; allowed are config_groups, producer"},
      {R"j({"sparse_attention_config": {"config_groups": {"g": {"algorithm": "skip_softmax"}}}})j",
       "is no config group"},
      {R"j({"sparse_attention_config": {"config_groups": {"group_0": {"algorithm": "skip_softmax"}, "group_1": {"algorithm": "softmax_skip"}}}})j",
       "group_1 is a second skip_softmax group; at most one is allowed"},
      {R"j({"a": 1, "a": 2})j", "the key 'a' appears twice"},
      {R"j({"a": 1e999})j", "out of range"},
      {R"j({"a": NaN})j", "the JSON is broken"},
      {group(R"j(, "threshold": 1)j"), "unknown key 'threshold'; allowed are algorithm, targets"},
      {group(R"j(, "threshold_scale_factor": "x")j"), "is 'x'; it must be a number or a map"},
      {group(R"j(, "threshold_scale_factor": -3)j"), "is -3; allowed are finite numbers >= 0"},
      {group(R"j(, "threshold_scale_factor": {"formula": "a"})j"), "a formula without coefficients"},
      {group(R"j(, "threshold_scale_factor": {"coefficients": {"a": 1}})j"), "has no formula"},
      {group(R"j(, "threshold_scale_factor": {"formula": "a", "coefficients": {"a": 1}, "decode": {"a": 1}})j"),
       "one of the two forms"},
      {group(R"j(, "threshold_scale_factor": {"formula": "a", "coefficients": {"a": 1, "log_a": 1}})j"),
       "both a and log_a"},
      {group(R"j(, "threshold_scale_factor": {"formula": "a", "coefficients": {"c": 1}})j"),
       "unknown key 'c'; allowed are a, b, log_a"},
      {group(R"j(, "threshold_scale_factor": {"formula": "os.exit(1)", "coefficients": {"a": 1}})j"),
       "unknown name 'os'"},
      {group(R"j(, "threshold_scale_factor": {"formula": "-a", "coefficients": {"a": 1}})j"), "gives -1 for prefill"},
      {group(R"j(, "threshold_scale_factor": {"formula": "1/(a-a)", "coefficients": {"a": 1}})j"),
       "gives inf for prefill"},
      {group(R"j(, "target_sparsity": 1.01)j"), "is 1.01; allowed are 0 to 1"},
      {group(R"j(, "ignore": "x")j"), "ignore is 'x'; it must be a list"},
      {group(R"j(, "ignore": [1])j"), "ignore[0] is 1; it must be a string"},
      {group(R"j(, "disabled_until_timestep": null)j"), "is empty; it must be a number"},
      {std::string(200000, '['), "the nesting is deeper than 16 levels"},
      {std::string(2 << 20, ' '), "at most 1048576 are read"},
  };
  for (const auto& [text, part] : cases) {
    expect_message(error_of([&text = text] { parse_checkpoint_json(text, "c.json"); }), part, text.substr(0, 300));
  }
}

TEST(ThresholdScaleFactor, TheUserOverridesTheCheckpoint) {
  SkipSoftmaxConfig checkpoint =
      parse_checkpoint_json(group(std::string(kFormula) + R"j(, "target_sparsity": 0.5)j"), "c");
  SkipSoftmaxConfig user;
  const auto of = [&](Phase phase) { return threshold_scale_factor(phase, user, &checkpoint); };
  EXPECT_EQ(of(Phase::prefill)->value, checkpoint.formula->evaluate(Phase::prefill, 0.5));
  EXPECT_EQ(of(Phase::prefill)->origin, "target_sparsity 0.5 of the checkpoint");
  user.target_sparsity.prefill = 0.2;
  EXPECT_EQ(of(Phase::prefill)->value, checkpoint.formula->evaluate(Phase::prefill, 0.2));
  EXPECT_EQ(of(Phase::decode)->value, checkpoint.formula->evaluate(Phase::decode, 0.5))
      << "phases are overridden one by one";
  user.threshold_scale_factor.prefill = 42;
  EXPECT_EQ(of(Phase::prefill)->value, 42);
  EXPECT_EQ(of(Phase::prefill)->origin, "threshold_scale_factor of the user");
}

TEST(ThresholdScaleFactor, DenseWithoutValuesAndAnErrorWithoutAFormula) {
  SkipSoftmaxConfig user;
  EXPECT_FALSE(threshold_scale_factor(Phase::prefill, user, nullptr));
  user.target_sparsity.prefill = 0.5;
  expect_message(error_of([&] { threshold_scale_factor(Phase::prefill, user, nullptr); }),
                 "needs a formula in the checkpoint", "");
  EXPECT_FALSE(threshold_scale_factor(Phase::decode, user, nullptr));
}

// --- our own file ---

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
