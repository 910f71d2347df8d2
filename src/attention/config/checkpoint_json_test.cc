#include <gtest/gtest.h>

#include <cmath>

#include "attention/config/config_errors_test.h"
#include "longhaul/config.h"

namespace longhaul {
namespace {

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

TEST(CheckpointJson, AFittedRangeNeedsAFormulaForItsPhase) {
  const auto with_producer = [](const std::string& factor) {
    return R"j({"sparse_attention_config": {"producer": {"name": "longhaul", "fitted_target_sparsity": {"decode": [0.2, 0.8]}},
      "config_groups": {"group_0": {"algorithm": "skip_softmax")j" +
           factor + "}}}}";
  };
  for (const char* factor : {"", R"j(, "threshold_scale_factor": {"decode": 5})j", R"j(, "threshold_scale_factor": 5)j",
                             R"j(, "threshold_scale_factor": {"formula": "a", "prefill": {"a": 1}})j"}) {
    expect_message(error_of([&] { parse_checkpoint_json(with_producer(factor), "c.json"); }),
                   "fitted_target_sparsity.decode is the range of a fit, but the file has no formula with coefficients "
                   "for decode",
                   factor);
  }
  const SkipSoftmaxConfig config = parse_checkpoint_json(with_producer(kFormula), "c.json");
  EXPECT_EQ(config.formula->fitted_target_sparsity.decode, (Interval{0.2, 0.8}));
  EXPECT_FALSE(config.formula->fitted_target_sparsity.prefill);

  SkipSoftmaxConfig written = config;
  written.formula->coefficients.decode.reset();
  EXPECT_THROW(to_checkpoint_json(written), InvalidArgument) << "what could not be read is not written";
}

TEST(CheckpointJson, EachMistakeGivesOneSentence) {
  const std::pair<std::string, std::string> cases[] = {
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
      // A long foreign name is cut between characters.
      {group(", \"" + std::string(79, 'x') + "\xC3\xA9y\": 1"), "'" + std::string(79, 'x') + "…'"},
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

}  // namespace
}  // namespace longhaul
