#include "longhaul/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "attention/tile_plan.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using Keep = std::function<bool(const SkipCurve&)>;

struct Parts {
  std::vector<CalibrationSample> fitted, held_out;
};

Parts split(std::span<const CalibrationSample> samples) {
  Parts parts;
  for (const CalibrationSample& sample : samples) (sample.held_out ? parts.held_out : parts.fitted).push_back(sample);
  if (parts.fitted.empty()) throw InvalidArgument("no sample to fit is given: all are held out, or there are none");
  for (const CalibrationSample& sample : samples) {
    if (sample.layers.empty()) throw InvalidArgument(fmt::format("sample '{}' has no layers", sample.name));
    if (sample.context_length < 1) {
      throw InvalidArgument(fmt::format("sample '{}' has context_length {}; allowed are values >= 1", sample.name,
                                        sample.context_length));
    }
  }
  return parts;
}

// One point a sample and lambda, over the curves that `keep` accepts.
std::vector<FitPoint> points_of(const CalibrationReport& report, const std::vector<CalibrationSample>& samples,
                                const Keep& keep) {
  std::vector<FitPoint> points;
  for (size_t s = 0; s < samples.size(); ++s) {
    const std::vector<double> sparsity =
        sparsity_curve(report.curves, report.lambdas.size(),
                       [&](const SkipCurve& curve) { return curve.sample == static_cast<int>(s) && keep(curve); });
    for (size_t i = 0; i < sparsity.size(); ++i) {
      points.push_back({report.lambdas[i], static_cast<double>(samples[s].context_length), sparsity[i]});
    }
  }
  return points;
}

int longest_sample(const std::vector<CalibrationSample>& samples) {
  const auto longest = std::max_element(
      samples.begin(), samples.end(),
      [](const CalibrationSample& a, const CalibrationSample& b) { return a.context_length < b.context_length; });
  return static_cast<int>(longest - samples.begin());
}

std::set<std::pair<int, int>> layers_and_heads(const CalibrationReport& report) {
  std::set<std::pair<int, int>> found;
  for (const SkipCurve& curve : report.curves) found.emplace(curve.layer, curve.head);
  return found;
}

std::set<int> layers_of(const CalibrationReport& report) {
  std::set<int> found;
  for (const SkipCurve& curve : report.curves) found.insert(curve.layer);
  return found;
}

Keep keeping(int layer, int head) {
  return
      [=](const SkipCurve& curve) { return (layer < 0 || curve.layer == layer) && (head < 0 || curve.head == head); };
}

void fill_table(CalibrationReport& report, int sample) {
  const auto add = [&](int layer, int head) {
    const Keep keep = keeping(layer, head);
    const std::vector<double> sparsity =
        sparsity_curve(report.curves, report.lambdas.size(),
                       [&](const SkipCurve& curve) { return curve.sample == sample && keep(curve); });
    TargetRow row{layer, head, {}};
    for (const double target : report.targets)
      row.lambdas.push_back(lambda_at_sparsity(report.lambdas, sparsity, target));
    report.table.push_back(std::move(row));
  };
  add(-1, -1);
  for (const int layer : layers_of(report)) add(layer, -1);
  for (const auto& [layer, head] : layers_and_heads(report)) add(layer, head);
}

std::optional<double> exponent_of(const CalibrationOptions& options) {
  if (options.exponent || options.fit_exponent) return options.exponent;
  return 1;
}

// A layer or head whose sparsity hardly moves cannot be fitted: a note says so, and the model's law stands in.
void fit_overrides(CalibrationReport& report, const std::vector<CalibrationSample>& samples,
                   const CalibrationOptions& options) {
  const auto add = [&](int layer, int head) {
    const std::vector<FitPoint> points = points_of(report, samples, keeping(layer, head));
    const auto usable = std::count_if(points.begin(), points.end(),
                                      [](const FitPoint& p) { return kFittedSparsity.contains(p.sparsity); });
    const std::string where =
        head < 0 ? fmt::format("layer {}", layer) : fmt::format("head {} of layer {}", head, layer);
    if (usable < 3) {
      report.notes.push_back(
          fmt::format("{} has {} points to fit, fewer than 3, and follows the law of the model", where, usable));
      return;
    }
    try {
      LawOverride override{layer, {}, fit_lambda_law(points, exponent_of(options)).law};
      if (head >= 0) override.head = head;
      report.overrides.push_back(std::move(override));
    } catch (const InvalidArgument& error) {  // the options suit the model's law, so it is these points
      report.notes.push_back(fmt::format("{} follows the law of the model, because {}", where, error.what()));
    }
  };
  if (options.granularity == Granularity::layer) {
    for (const int layer : layers_of(report)) add(layer, -1);
  }
  if (options.granularity == Granularity::head) {
    for (const auto& [layer, head] : layers_and_heads(report)) add(layer, head);
  }
}

const LambdaLaw& law_of(const CalibrationReport& report, int layer, int head) {
  for (const LawOverride& override : report.overrides) {
    if (override.layer == layer && override.head.value_or(head) == head) return override.law;
  }
  return report.law.law;
}

double compatible_lambda(const ScaleFactorFit& fit, double target, double context_length) {
  return std::min(1.0, fit.a * std::exp(fit.b * target) / context_length);
}

std::vector<double> targets_within(CalibrationReport& report, const char* form, const Interval& fitted) {
  std::vector<double> inside, outside;
  for (const double target : report.targets) (fitted.contains(target) ? inside : outside).push_back(target);
  if (!outside.empty()) {
    report.notes.push_back(
        fmt::format("the {} was fitted over sparsities from {:.3f} to {:.3f}, so it was not tested at {}", form,
                    fitted.low, fitted.high, fmt::join(outside, ", ")));
  }
  return inside;
}

class HeldOutTest {
 public:
  HeldOutTest(CalibrationReport& report, const std::vector<CalibrationSample>& samples)
      : report_(report), samples_(samples) {}

  void test_law(const Progress& progress) {
    const auto targets = targets_within(report_, "law", report_.law.quality.sparsity);
    std::vector<LambdaOf> settings;
    for (const double target : targets) {
      settings.emplace_back([this, target](int sample, int layer, int head) {
        return static_cast<float>(law_of(report_, layer, head).lambda(target, length(sample)));
      });
    }
    run(
        targets, settings, [this](double target, int sample) { return report_.law.law.lambda(target, length(sample)); },
        progress, report_.held_out);
  }

  void test_scale_factor(const Progress& progress) {
    const auto targets = targets_within(report_, "scale factor", report_.scale_factor.quality.sparsity);
    const auto lambda = [this](double target, int sample) {
      return compatible_lambda(report_.scale_factor, target, length(sample));
    };
    std::vector<LambdaOf> settings;
    for (const double target : targets) {
      settings.emplace_back([=](int sample, int, int) { return static_cast<float>(lambda(target, sample)); });
    }
    run(targets, settings, lambda, progress, report_.held_out_scale_factor);
  }

 private:
  double length(int sample) const { return static_cast<double>(samples_[sample].context_length); }

  void run(const std::vector<double>& targets, const std::vector<LambdaOf>& settings,
           const std::function<double(double, int)>& shown, const Progress& progress, std::vector<HeldOutRow>& out) {
    const auto achieved = measure_sparsity(samples_, report_.decider, settings, progress);
    for (size_t s = 0; s < samples_.size(); ++s) {
      for (size_t i = 0; i < targets.size(); ++i) {
        out.push_back({samples_[s].name, samples_[s].context_length, targets[i], shown(targets[i], static_cast<int>(s)),
                       achieved[i][s]});
      }
    }
  }

  CalibrationReport& report_;
  const std::vector<CalibrationSample>& samples_;
};

void fill_decider(Decider& decider) {
  if (decider.oracle) return;
  decider.order = VisitOrder::newest_first;
  decider.geometry = decider.phase == Phase::prefill ? kCpuPrefill : kCpuDecode;
}

void check_target(double target, const Interval& fitted) {
  if (!fitted.contains(target)) {
    throw InvalidArgument(fmt::format("target_sparsity is {}; the calibration was fitted over {:.3f} to {:.3f}", target,
                                      fitted.low, fitted.high));
  }
}

}  // namespace

CalibrationReport calibrate(std::span<const CalibrationSample> samples, const CalibrationOptions& options) {
  for (const double target : options.targets) {
    if (!(target > 0 && target < 1)) {
      throw InvalidArgument(fmt::format("a target sparsity is {}; allowed are values above 0 and below 1", target));
    }
  }
  const Parts parts = split(samples);
  CalibrationReport report;
  report.decider = options.decider;
  report.lambdas = options.lambdas;
  report.targets = options.targets;
  fill_decider(report.decider);
  report.curves = measure_skip_curves(parts.fitted, report.decider, report.lambdas, options.progress);
  fill_table(report, longest_sample(parts.fitted));
  const std::vector<FitPoint> points = points_of(report, parts.fitted, keeping(-1, -1));
  report.law = fit_lambda_law(points, exponent_of(options));
  report.scale_factor = fit_scale_factor(points);
  fit_overrides(report, parts.fitted, options);
  if (parts.held_out.empty()) {
    report.notes.emplace_back("no sample is held out, so the fit was not tested");
  } else {
    HeldOutTest test(report, parts.held_out);
    test.test_law(options.progress);
    test.test_scale_factor(options.progress);
  }
  return report;
}

PhaseConfig phase_config(const CalibrationReport& report, double target_sparsity) {
  check_target(target_sparsity, report.law.quality.sparsity);
  PhaseConfig config;
  config.rule = report.decider.rule;
  config.order = report.decider.order;
  config.geometry = report.decider.geometry;
  config.law = report.law.law;
  config.overrides = report.overrides;
  config.target_sparsity = target_sparsity;
  config.fitted_target_sparsity = report.law.quality.sparsity;
  config.fitted_context_length = report.law.quality.context_length;
  return config;
}

void add_scale_factor(const CalibrationReport& report, double target_sparsity, SkipSoftmaxConfig& config) {
  const ScaleFactorFit& fit = report.scale_factor;
  check_target(target_sparsity, fit.quality.sparsity);
  config.threshold_scale_factor[report.decider.phase] = fit.a * std::exp(fit.b * target_sparsity);
}

void add_formula(const CalibrationReport& report, double target_sparsity, SkipSoftmaxConfig& config) {
  const ScaleFactorFit& fit = report.scale_factor;
  check_target(target_sparsity, fit.quality.sparsity);
  if (!config.formula) config.formula.emplace();
  config.formula->coefficients[report.decider.phase] = {{"a", fit.a}, {"b", fit.b}};
  config.formula->fitted_target_sparsity[report.decider.phase] = fit.quality.sparsity;
  config.target_sparsity[report.decider.phase] = target_sparsity;
}

}  // namespace longhaul
