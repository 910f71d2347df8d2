// Longhaul's own file.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "attention/config/tree.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using config::Node;
using config::Value;
using config::yaml_number;
using config::yaml_string;

constexpr Phase kPhases[] = {Phase::prefill, Phase::decode};
const char* name_of(Phase phase) { return phase == Phase::prefill ? "prefill" : "decode"; }
constexpr int64_t kMaxIndex = 1'000'000;
constexpr double kMaxContext = 1e12;

int64_t choice(const Value& value, std::initializer_list<std::string_view> names) {
  const std::string text = value.string();
  int64_t index = 0;
  for (const std::string_view name : names) {
    if (name == text) return index;
    ++index;
  }
  value.fail(fmt::format("is {}; allowed are {}", value.describe(), fmt::join(names, ", ")));
}

// The law's keys lie in `value` itself, beside an override's layer and head.
LambdaLaw read_law(const Value& value) {
  LambdaLaw law;
  const bool fitted = value.has("alpha") || value.has("beta");
  if (value.has("coefficient") == fitted) value.fail("must hold either coefficient, or alpha and beta");
  if (fitted) {
    law.alpha = value["alpha"].number();
    law.beta = value["beta"].number_at_least_0();
  } else {
    law.coefficient = value["coefficient"].number_at_least_0();
  }
  if (value.has("exponent")) law.exponent = value["exponent"].number_at_least_0();
  return law;
}

Geometry read_geometry(const Value& value) {
  value.expect_map({"tile_keys", "block_keys", "group_rows"});
  const auto read = [&](const char* key, int64_t low) {
    return static_cast<int>(value[key].integer_in(low, kMaxIndex));
  };
  return {.tile_keys = read("tile_keys", 1), .block_keys = read("block_keys", 1), .group_rows = read("group_rows", 0)};
}

PhaseConfig read_phase(const Value& value) {
  value.expect_map({"rule", "key_test", "order", "geometry", "law", "overrides", "target_sparsity",
                    "fitted_target_sparsity", "fitted_context_length"});
  PhaseConfig phase;
  phase.rule = static_cast<SkipRule>(choice(value["rule"], {"max", "sum"}));
  choice(value["key_test"], {"exact"});
  phase.order = static_cast<VisitOrder>(choice(value["order"], {"newest_first", "ascending"}));
  phase.geometry = read_geometry(value["geometry"]);
  phase.law = read_law(value["law"].expect_map({"coefficient", "alpha", "beta", "exponent"}));
  if (value.has("overrides")) {
    for (const Value& item : value["overrides"].items()) {
      item.expect_map({"layer", "head", "coefficient", "alpha", "beta", "exponent"});
      LawOverride override{item["layer"].integer_in(0, kMaxIndex), {}, read_law(item)};
      if (item.has("head")) override.head = item["head"].integer_in(0, kMaxIndex);
      phase.overrides.push_back(std::move(override));
    }
  }
  if (value.has("target_sparsity")) phase.target_sparsity = value["target_sparsity"].number_in(0, 1);
  phase.fitted_target_sparsity = value["fitted_target_sparsity"].interval(0, 1);
  phase.fitted_context_length = value["fitted_context_length"].interval(1, kMaxContext);
  return phase;
}

std::string law_fields(const LambdaLaw& law) {
  const std::string head = law.coefficient
                               ? fmt::format("coefficient: {}", yaml_number(*law.coefficient))
                               : fmt::format("alpha: {}, beta: {}", yaml_number(law.alpha), yaml_number(law.beta));
  return fmt::format("{}, exponent: {}", head, yaml_number(law.exponent));
}

std::string interval_text(const Interval& interval) {
  return fmt::format("[{}, {}]", yaml_number(interval.low), yaml_number(interval.high));
}

std::string phase_text(const PhaseConfig& phase) {
  std::string text =
      fmt::format("  rule: {}\n  key_test: {}\n  order: {}\n", phase.rule == SkipRule::max ? "max" : "sum",
                  phase.key_test, phase.order == VisitOrder::newest_first ? "newest_first" : "ascending");
  text += fmt::format("  geometry: {{tile_keys: {}, block_keys: {}, group_rows: {}}}\n", phase.geometry.tile_keys,
                      phase.geometry.block_keys, phase.geometry.group_rows);
  if (phase.target_sparsity) text += fmt::format("  target_sparsity: {}\n", yaml_number(*phase.target_sparsity));
  text += fmt::format("  fitted_target_sparsity: {}\n", interval_text(phase.fitted_target_sparsity));
  text += fmt::format("  fitted_context_length: {}\n", interval_text(phase.fitted_context_length));
  text += fmt::format("  law: {{{}}}\n", law_fields(phase.law));
  if (!phase.overrides.empty()) text += "  overrides:\n";
  for (const LawOverride& override : phase.overrides) {
    const std::string head = override.head ? fmt::format("head: {}, ", *override.head) : "";
    text += fmt::format("    - {{layer: {}, {}{}}}\n", override.layer, head, law_fields(override.law));
  }
  return text;
}

}  // namespace

LonghaulConfig parse_longhaul_yaml(std::string_view text, std::string_view source) {
  const Node tree = config::parse_yaml_tree(text, source);
  const Value root = Value(tree, source).expect_map({"version", "model", "samples", "prefill", "decode"});
  const Value version = root["version"];
  if (version.number() != LonghaulConfig::kVersion) {
    version.fail(fmt::format("is {}; this library reads version {}", version.describe(), LonghaulConfig::kVersion));
  }
  LonghaulConfig result;
  if (root.has("model")) result.model = root["model"].string();
  if (root.has("samples")) result.samples = root["samples"].string();
  for (const Phase phase : kPhases) {
    if (root.has(name_of(phase))) result.phases[phase] = read_phase(root[name_of(phase)]);
  }
  check_config(result, source);
  return result;
}

std::string to_longhaul_yaml(const LonghaulConfig& config) {
  check_config(config, "the configuration to write");
  std::string text = fmt::format(
      "# Longhaul attention: lambda = min(1, c * L^-exponent); c = coefficient, or exp(alpha + beta * "
      "logit(target_sparsity)).\n"
      "version: {}\nmodel: {}\nsamples: {}\n",
      LonghaulConfig::kVersion, yaml_string(config.model), yaml_string(config.samples));
  for (const Phase phase : kPhases) {
    if (config.phases[phase]) text += fmt::format("{}:\n{}", name_of(phase), phase_text(*config.phases[phase]));
  }
  return text;
}

}  // namespace longhaul
