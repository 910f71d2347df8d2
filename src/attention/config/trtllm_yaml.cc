// TensorRT-LLM's options file.
#include <fmt/format.h>

#include <limits>

#include "attention/config/tree.h"
#include "longhaul/error.h"

namespace longhaul {

using config::Node;
using config::Value;

SkipSoftmaxConfig parse_trtllm_yaml(std::string_view text, std::string_view source) {
  const Node tree = config::parse_yaml_tree(text, source);
  const Value root = Value(tree, source).expect_map({});
  const Value section = root["sparse_attention_config"];
  section.expect_map({"algorithm", "threshold_scale_factor", "target_sparsity", "disabled_until_timestep"});
  const Value algorithm = section["algorithm"];
  if (algorithm.string() != "skip_softmax") {
    algorithm.fail(fmt::format("is {}; supported is skip_softmax", algorithm.describe()));
  }
  SkipSoftmaxConfig result;
  if (section.has("threshold_scale_factor")) {
    result.threshold_scale_factor =
        config::read_by_phase(section["threshold_scale_factor"], std::numeric_limits<double>::infinity());
  }
  if (section.has("target_sparsity")) result.target_sparsity = config::read_by_phase(section["target_sparsity"], 1);
  if (section.has("disabled_until_timestep")) {
    result.disabled_until_timestep = section["disabled_until_timestep"].number_at_least_0();
  }
  return result;
}

namespace {

std::string by_phase_lines(const char* key, const ByPhase<double>& values) {
  if (!values.prefill && !values.decode) return "";
  if (values.prefill == values.decode) return fmt::format("  {}: {}\n", key, config::yaml_number(*values.prefill));
  std::string text = fmt::format("  {}:\n", key);
  if (values.prefill) text += fmt::format("    prefill: {}\n", config::yaml_number(*values.prefill));
  if (values.decode) text += fmt::format("    decode: {}\n", config::yaml_number(*values.decode));
  return text;
}

}  // namespace

std::string to_trtllm_yaml(const SkipSoftmaxConfig& config) {
  if (config.formula || !config.targets.empty() || !config.ignore.empty()) {
    throw InvalidArgument(
        "formula, targets and ignore have no place in TensorRT-LLM's YAML; write them in the checkpoint's config.json");
  }
  std::string text = "sparse_attention_config:\n  algorithm: skip_softmax\n";
  text += by_phase_lines("threshold_scale_factor", config.threshold_scale_factor);
  text += by_phase_lines("target_sparsity", config.target_sparsity);
  if (config.disabled_until_timestep) {
    text += fmt::format("  disabled_until_timestep: {}\n", config::yaml_number(*config.disabled_until_timestep));
  }
  parse_trtllm_yaml(text, "the configuration to write");  // the same checks as for reading
  return text;
}

}  // namespace longhaul
