// The form that Model Optimizer writes into a checkpoint's config.json.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "attention/config/formula.h"
#include "attention/config/tree.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using config::Node;
using config::Value;
using nlohmann::ordered_json;

constexpr Phase kPhases[] = {Phase::prefill, Phase::decode};
const char* name_of(Phase phase) { return phase == Phase::prefill ? "prefill" : "decode"; }

std::map<std::string, double> read_coefficients(const Value& value) {
  value.expect_map({"a", "b", "log_a"});
  if (value.has("a") && value.has("log_a")) value.fail("has both a and log_a; allowed is one of them");
  std::map<std::string, double> result;
  for (const auto& [name, coefficient] : value.members()) result[name] = coefficient.number();
  return result;
}

FactorFormula read_formula(const Value& value) {
  value.expect_map({"formula", "coefficients", "prefill", "decode"});
  FactorFormula formula;
  formula.text = value["formula"].string();
  if (value.has("coefficients")) {
    if (value.has("prefill") || value.has("decode")) {
      value.fail("has coefficients beside prefill or decode; allowed is one of the two forms");
    }
    formula.coefficients.prefill = formula.coefficients.decode = read_coefficients(value["coefficients"]);
  }
  for (const Phase phase : kPhases) {
    if (value.has(name_of(phase))) formula.coefficients[phase] = read_coefficients(value[name_of(phase)]);
  }
  if (!formula.coefficients.prefill && !formula.coefficients.decode) {
    value.fail("has a formula without coefficients; allowed are prefill and decode, or coefficients for both");
  }
  for (const Phase phase : kPhases) {
    if (!formula.coefficients[phase]) continue;
    try {
      formula.evaluate(phase, 0.5);
    } catch (const InvalidArgument& error) {
      value.fail(fmt::format("has a formula that does not work: {}", error.what()));
    }
  }
  return formula;
}

bool is_skip_softmax(const Value& group) {
  group.expect_map({});
  const std::string algorithm = group["algorithm"].string();
  return algorithm == "skip_softmax" || algorithm == "softmax_skip";
}

SkipSoftmaxConfig read_group(const Value& group) {
  group.expect_map(
      {"algorithm", "targets", "threshold_scale_factor", "target_sparsity", "ignore", "disabled_until_timestep"});
  SkipSoftmaxConfig result;
  if (group.has("threshold_scale_factor")) {
    const Value factor = group["threshold_scale_factor"];
    if (factor.is_map() && (factor.has("formula") || factor.has("coefficients"))) {
      result.formula = read_formula(factor);
    } else {
      result.threshold_scale_factor = config::read_by_phase(factor, std::numeric_limits<double>::infinity());
    }
  }
  if (group.has("target_sparsity")) result.target_sparsity = config::read_by_phase(group["target_sparsity"], 1);
  if (group.has("targets")) result.targets = group["targets"].strings();
  if (group.has("ignore")) result.ignore = group["ignore"].strings();
  if (group.has("disabled_until_timestep")) {
    result.disabled_until_timestep = group["disabled_until_timestep"].number_at_least_0();
  }
  return result;
}

// Longhaul states the fitted range beside its own name; what others say about themselves is no concern of ours.
void read_producer(const Value& producer, SkipSoftmaxConfig& result) {
  producer.expect_map({});
  if (!producer.has("name") || producer["name"].node().text != "longhaul") return;
  producer.expect_map({"name", "fitted_target_sparsity"});
  if (!producer.has("fitted_target_sparsity")) return;
  const Value fitted = producer["fitted_target_sparsity"].expect_map({"prefill", "decode"});
  for (const Phase phase : kPhases) {
    if (!fitted.has(name_of(phase))) continue;
    const Value range = fitted[name_of(phase)];
    if (!result.formula || !result.formula->coefficients[phase]) {
      range.fail(
          fmt::format("is the range of a fit, but the file has no formula with coefficients for {}", name_of(phase)));
    }
    result.formula->fitted_target_sparsity[phase] = range.interval(0, 1);
  }
}

ordered_json by_phase_json(const ByPhase<double>& values) {
  if (values.prefill == values.decode) return *values.prefill;
  ordered_json json = ordered_json::object();
  for (const Phase phase : kPhases) {
    if (values[phase]) json[name_of(phase)] = *values[phase];
  }
  return json;
}

ordered_json formula_json(const FactorFormula& formula) {
  ordered_json json{{"formula", formula.text}};
  for (const Phase phase : kPhases) {
    if (formula.coefficients[phase]) json[name_of(phase)] = *formula.coefficients[phase];
  }
  return json;
}

ordered_json fitted_json(const FactorFormula& formula) {
  ordered_json json = ordered_json::object();
  for (const Phase phase : kPhases) {
    if (const auto& range = formula.fitted_target_sparsity[phase]) json[name_of(phase)] = {range->low, range->high};
  }
  return json;
}

}  // namespace

SkipSoftmaxConfig parse_checkpoint_json(std::string_view text, std::string_view source) {
  const Node tree = config::parse_json_tree(text, source);
  const Value root = Value(tree, source).expect_map({});
  const Value section = root["sparse_attention_config"];
  section.expect_map({"config_groups", "producer"});
  const Value groups = section["config_groups"].expect_map({});
  std::optional<SkipSoftmaxConfig> result;
  for (const auto& [name, group] : groups.members()) {
    if (!name.starts_with("group_")) group.fail("is no config group; their names are group_0, group_1 and so on");
    if (!is_skip_softmax(group)) continue;
    if (result) group.fail("is a second skip_softmax group; at most one is allowed");
    result = read_group(group);
  }
  if (!result) groups.fail("holds no group with algorithm skip_softmax");
  if (section.has("producer")) read_producer(section["producer"], *result);
  return *result;
}

std::string to_checkpoint_json(const SkipSoftmaxConfig& config) {
  ordered_json group{{"algorithm", "skip_softmax"}};
  if (!config.targets.empty()) group["targets"] = config.targets;
  const bool has_factor = config.threshold_scale_factor.prefill || config.threshold_scale_factor.decode;
  if (has_factor && config.formula) {
    throw InvalidArgument("the checkpoint form holds either a formula or fixed threshold scale factors, not both");
  }
  if (config.formula) group["threshold_scale_factor"] = formula_json(*config.formula);
  if (has_factor) group["threshold_scale_factor"] = by_phase_json(config.threshold_scale_factor);
  if (config.target_sparsity.prefill || config.target_sparsity.decode) {
    group["target_sparsity"] = by_phase_json(config.target_sparsity);
  }
  if (!config.ignore.empty()) group["ignore"] = config.ignore;
  if (config.disabled_until_timestep) group["disabled_until_timestep"] = *config.disabled_until_timestep;
  ordered_json producer{{"name", "longhaul"}};
  if (config.formula) {
    if (ordered_json fitted = fitted_json(*config.formula); !fitted.empty())
      producer["fitted_target_sparsity"] = fitted;
  }
  const ordered_json root{
      {"sparse_attention_config", {{"config_groups", {{"group_0", group}}}, {"producer", producer}}}};
  std::string text;
  try {
    text = root.dump(2) + "\n";
  } catch (const ordered_json::exception&) {
    throw InvalidArgument("targets or ignore of the checkpoint form hold text that is no valid UTF-8");
  }
  parse_checkpoint_json(text, "the configuration to write");  // the same checks as for reading
  return text;
}

}  // namespace longhaul
