#include <gtest/gtest.h>

#include <cmath>

#include "attention/config/config_errors_test.h"
#include "longhaul/config.h"

namespace longhaul {
namespace {

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

}  // namespace
}  // namespace longhaul
