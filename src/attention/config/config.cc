#include "longhaul/config.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "attention/config/formula.h"
#include "io/printable.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

const char* name_of(Phase phase) { return phase == Phase::prefill ? "prefill" : "decode"; }
const char* name_of(SkipRule rule) { return rule == SkipRule::max ? "max" : "sum"; }
const char* name_of(VisitOrder order) { return order == VisitOrder::newest_first ? "newest_first" : "ascending"; }

auto fields(const Geometry& g) { return std::tuple(g.tile_keys, g.block_keys, g.group_rows); }
auto fields(const PhaseConfig& p) {
  return std::tie(p.rule, p.key_test, p.order, p.law, p.overrides, p.target_sparsity, p.fitted_target_sparsity,
                  p.fitted_context_length);
}

std::string describe(SkipRule rule, VisitOrder order, const Geometry& g) {
  return fmt::format("rule {}, order {}, tiles of {}, blocks of {} keys and groups of {} rows", name_of(rule),
                     name_of(order), g.tile_keys, g.block_keys, g.group_rows);
}

// One of our own configurations, checked phase by phase.
class Checker {
 public:
  Checker(const PhaseConfig& config, Phase phase, std::string_view source)
      : config_(config), phase_(phase), source_(source) {}

  void check() const {
    const Geometry& g = config_.geometry;
    if (g.tile_keys < 1 || g.block_keys < 1 || g.tile_keys % g.block_keys != 0) {
      fail(fmt::format("geometry has tiles of {} and blocks of {} keys; a tile must be a multiple of a block",
                       g.tile_keys, g.block_keys));
    }
    if (g.group_rows < (phase_ == Phase::prefill ? 1 : 0)) {
      fail(fmt::format("geometry.group_rows is {}; allowed are integers >= {}", g.group_rows,
                       phase_ == Phase::prefill ? 1 : 0));
    }
    if (config_.key_test != "exact") fail(fmt::format("key_test is '{}'; allowed is exact", config_.key_test));
    check_interval("fitted_target_sparsity", config_.fitted_target_sparsity, 0, 1);
    check_interval("fitted_context_length", config_.fitted_context_length, 1, 1e12);
    check_laws();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(fmt::format("{}: {}.{}", source_, name_of(phase_), what));
  }

  void check_interval(const char* name, const Interval& interval, double low, double high) const {
    if (!(interval.low >= low && interval.low <= interval.high && interval.high <= high)) {
      fail(fmt::format("{} is [{}, {}]; allowed are intervals within [{}, {}]", name, interval.low, interval.high, low,
                       high));
    }
  }

  void check_laws() const {
    bool by_target = check_law("law", config_.law);
    std::set<std::pair<int64_t, int64_t>> seen;
    for (size_t i = 0; i < config_.overrides.size(); ++i) {
      const LawOverride& override = config_.overrides[i];
      const std::string name = fmt::format("overrides[{}]", i);
      if (override.layer < 0 || override.head.value_or(0) < 0) fail(name + " names a layer or head below 0");
      if (!seen.emplace(override.layer, override.head.value_or(-1)).second)
        fail(name + " repeats an earlier layer and head");
      by_target = check_law(name, override.law) || by_target;
    }
    if (config_.target_sparsity) check_target(*config_.target_sparsity);
    if (by_target && !config_.target_sparsity) fail("target_sparsity is missing, and a law depends on it");
  }

  void check_target(double target) const {
    const Interval& fitted = config_.fitted_target_sparsity;
    if (!(target > 0 && target < 1 && fitted.contains(target))) {
      fail(
          fmt::format("target_sparsity is {}; allowed are values above 0, below 1 and within the fitted range [{}, {}]",
                      target, fitted.low, fitted.high));
    }
  }

  // Whether the law depends on the target sparsity.
  bool check_law(const std::string& name, const LambdaLaw& law) const {
    const double coefficient = law.coefficient.value_or(0);
    if (!std::isfinite(coefficient) || coefficient < 0)
      fail(fmt::format("{}.coefficient is {}; allowed are finite numbers >= 0", name, coefficient));
    if (!std::isfinite(law.alpha)) fail(fmt::format("{}.alpha is {}; it must be finite", name, law.alpha));
    if (!std::isfinite(law.beta) || law.beta < 0)
      fail(fmt::format("{}.beta is {}; allowed are finite numbers >= 0", name, law.beta));
    if (!std::isfinite(law.exponent) || law.exponent < 0)
      fail(fmt::format("{}.exponent is {}; allowed are finite numbers >= 0", name, law.exponent));
    return !law.coefficient;
  }

  const PhaseConfig& config_;
  Phase phase_;
  std::string_view source_;
};

const LambdaLaw& law_of(const PhaseConfig& config, int64_t layer, int64_t head) {
  const LambdaLaw* law = &config.law;
  for (const LawOverride& override : config.overrides) {
    if (override.layer != layer) continue;
    if (override.head == head) return override.law;
    if (!override.head) law = &override.law;
  }
  return *law;
}

}  // namespace

double FactorFormula::evaluate(Phase phase, double target) const {
  if (!(target >= 0 && target <= 1)) {
    throw InvalidArgument(fmt::format("target_sparsity is {}; allowed are 0 to 1", target));
  }
  const auto& given = coefficients[phase];
  if (!given)
    throw InvalidArgument(fmt::format("the formula '{}' has no coefficients for {}", printable(text), name_of(phase)));
  const auto& fitted = fitted_target_sparsity[phase];
  if (fitted && !fitted->contains(target)) {
    throw InvalidArgument(fmt::format("target_sparsity of {} is {}; the formula was fitted over {} to {}",
                                      name_of(phase), target, fitted->low, fitted->high));
  }
  std::map<std::string, double> variables = *given;
  if (variables.contains("log_a")) variables.emplace("a", std::exp(variables.at("log_a")));
  variables["target_sparsity"] = target;
  const double factor = config::evaluate_formula(text, variables);
  if (!std::isfinite(factor) || factor < 0) {
    throw InvalidArgument(
        fmt::format("the formula '{}' gives {} for {} at target_sparsity {}; it must give a finite number >= 0",
                    printable(text), factor, name_of(phase), target));
  }
  return factor;
}

bool SkipSoftmaxConfig::ignores(const std::string& layer_name) const {
  return std::any_of(ignore.begin(), ignore.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), layer_name.c_str(), FNM_NOESCAPE) == 0;
  });
}

std::optional<ScaleFactor> threshold_scale_factor(Phase phase, const SkipSoftmaxConfig& user,
                                                  const SkipSoftmaxConfig* checkpoint) {
  const FactorFormula* formula = user.formula ? &*user.formula : nullptr;
  if (formula == nullptr && checkpoint != nullptr && checkpoint->formula) formula = &*checkpoint->formula;
  const auto from = [&](const SkipSoftmaxConfig& config, const char* whose) -> std::optional<ScaleFactor> {
    if (const auto& factor = config.threshold_scale_factor[phase]) {
      return ScaleFactor{*factor, fmt::format("threshold_scale_factor of the {}", whose)};
    }
    const auto& target = config.target_sparsity[phase];
    if (!target) return std::nullopt;
    if (formula == nullptr) {
      throw InvalidArgument(
          fmt::format("target_sparsity {} of the {} for {} needs a formula in the checkpoint, which has none; "
                      "give threshold_scale_factor instead",
                      *target, whose, name_of(phase)));
    }
    return ScaleFactor{formula->evaluate(phase, *target), fmt::format("target_sparsity {} of the {}", *target, whose)};
  };
  if (auto factor = from(user, "user")) return factor;
  return checkpoint == nullptr ? std::nullopt : from(*checkpoint, "checkpoint");
}

double LambdaLaw::lambda(double target_sparsity, double context_length) const {
  double log_c = alpha;
  if (coefficient) {
    if (*coefficient == 0) return 0;
    log_c = std::log(*coefficient);
  } else {
    if (!(target_sparsity > 0 && target_sparsity < 1)) {
      throw InvalidArgument(fmt::format("target_sparsity is {}, but it must lie between 0 and 1", target_sparsity));
    }
    log_c += beta * std::log(target_sparsity / (1 - target_sparsity));
  }
  return std::exp(std::min(0.0, log_c - exponent * std::log(context_length)));
}

bool PhaseConfig::operator==(const PhaseConfig& other) const {
  return fields(*this) == fields(other) && fields(geometry) == fields(other.geometry);
}

float LonghaulConfig::lambda_for(Phase phase, int64_t layer, int64_t head, int64_t context_length,
                                 bool extrapolate) const {
  const auto& config = phases[phase];
  if (!config) throw InvalidArgument(fmt::format("the configuration has no {} section", name_of(phase)));
  if (layer < 0 || head < 0 || context_length < 1) {
    throw InvalidArgument(fmt::format("layer is {}, head {} and context_length {}; allowed are >= 0, >= 0 and >= 1",
                                      layer, head, context_length));
  }
  const Interval& fitted = config->fitted_context_length;
  if (!extrapolate && !fitted.contains(static_cast<double>(context_length))) {
    throw InvalidArgument(fmt::format("context_length is {}; the {} law was fitted over {} to {}", context_length,
                                      name_of(phase), fitted.low, fitted.high));
  }
  const LambdaLaw& law = law_of(*config, layer, head);
  if (!law.coefficient && !config->target_sparsity) {
    throw InvalidArgument(
        fmt::format("the {} law needs a target_sparsity, which the configuration lacks", name_of(phase)));
  }
  return static_cast<float>(law.lambda(config->target_sparsity.value_or(0.5), static_cast<double>(context_length)));
}

void LonghaulConfig::check_calibrated_for(Phase phase, SkipRule rule, VisitOrder order,
                                          const Geometry& geometry) const {
  const auto& config = phases[phase];
  if (!config) throw InvalidArgument(fmt::format("the configuration has no {} section", name_of(phase)));
  if (config->rule == rule && config->order == order && fields(config->geometry) == fields(geometry)) return;
  throw InvalidArgument(fmt::format(
      "the configuration was calibrated in {} for {}, but the kernel runs {}; calibrate again", name_of(phase),
      describe(config->rule, config->order, config->geometry), describe(rule, order, geometry)));
}

void check_config(const LonghaulConfig& config, std::string_view source) {
  if (!config.phases.prefill && !config.phases.decode) {
    throw InvalidArgument(fmt::format("{}: the file has neither prefill nor decode", source));
  }
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    if (const auto& settings = config.phases[phase]) Checker(*settings, phase, source).check();
  }
}

}  // namespace longhaul
