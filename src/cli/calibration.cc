#include "cli/calibration.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "cli/attention_flags.h"
#include "cli/attention_inputs.h"
#include "cli/support/console.h"

namespace longhaul::cli {
namespace {

constexpr int64_t kSampleRuns = 8, kRunRows = 64;

std::string place_text(int layer, int head) {
  if (layer < 0) return "all";
  return head < 0 ? fmt::format("layer {}", layer) : fmt::format("layer {} head {}", layer, head);
}

}  // namespace

Capture::Capture(const std::string& path) : name(std::filesystem::path(path).filename().string()), file(path) {
  for (const int layer : layers_in(file))
    layers.push_back({layer, read_tensors(file, fmt::format("layer.{}.", layer)), {}});
  if (layers.empty()) layers.push_back({0, read_tensors(file, ""), {}});
}

PublishedSamples::PublishedSamples(const Capture& capture, Phase phase) {
  if (phase == Phase::decode) {
    samples = samples_of_capture(capture.layers, phase, capture.name);
    return;
  }
  for (const auto& [share, held_out] : {std::pair{1.0, false}, std::pair{0.5, false}, std::pair{0.75, true}}) {
    CalibrationSample sample;
    sample.context_length = static_cast<int64_t>(share * static_cast<double>(capture.tokens()));
    sample.name = fmt::format("{}, {} tokens", capture.name, sample.context_length);
    sample.held_out = held_out;
    for (const CalibrationInput& input : capture.layers) {
      parts_.push_back(std::make_unique<PrefillSample>(input.args, sample.context_length, kSampleRuns, kRunRows));
      sample.layers.push_back({input.layer, parts_.back()->args(), nullptr});
    }
    samples.push_back(std::move(sample));
  }
}

std::string lambda_table(const CalibrationReport& report) {
  std::vector<std::string> header{report.decider.phase == Phase::decode ? "KV head" : "query head"};
  for (const double target : report.targets) header.push_back(fmt::format("{:.0f} %", 100 * target));
  Table table(header);
  for (const TargetRow& row : report.table) {
    std::vector<std::string> cells{place_text(row.layer, row.head)};
    for (const auto& lambda : row.lambdas) cells.push_back(lambda ? short_number(*lambda) : "-");
    table.add(cells);
  }
  return table.text();
}

std::string sparsity_table(const CalibrationReport& report) {
  constexpr size_t kColumns = 8;
  const size_t n = report.lambdas.size(), step = std::max<size_t>(1, n / kColumns);
  std::vector<size_t> shown;
  for (size_t i = (n - 1) % step; i < n; i += step) shown.push_back(i);
  std::vector<std::string> header{"lambda"};
  for (const size_t i : shown) header.push_back(short_number(report.lambdas[i]));
  Table table(header);
  const auto add = [&](const std::string& name, const std::function<bool(const SkipCurve&)>& keep) {
    const std::vector<double> curve = sparsity_curve(report.curves, n, keep);
    std::vector<std::string> cells{name};
    for (const size_t i : shown) cells.push_back(percent(curve[i]));
    table.add(cells);
  };
  std::set<std::pair<int, int>> places;
  for (const SkipCurve& curve : report.curves) places.emplace(curve.layer, curve.head);
  add("all", {});
  for (const std::pair<int, int>& place : places)
    add(place_text(place.first, place.second), [&](const SkipCurve& c) { return std::pair{c.layer, c.head} == place; });
  return table.text();
}

std::string held_out_table(const CalibrationReport& report, bool scale_factor) {
  Table table({"held-out sample", "context", "lambda", "target", "achieved"});
  for (const HeldOutRow& row : scale_factor ? report.held_out_scale_factor : report.held_out)
    table.add({row.sample, std::to_string(row.context_length), short_number(row.lambda), percent(row.target),
               percent(row.achieved)});
  return table.text();
}

std::string law_text(const LambdaLaw& law) {
  const std::string factor = law.coefficient
                                 ? fmt::format("{:.4g}", *law.coefficient)
                                 : fmt::format("exp({:.4g} + {:.4g} * logit(sparsity))", law.alpha, law.beta);
  return fmt::format("lambda = {} / L^{:.3g}", factor, law.exponent);
}

std::string law_text(const LambdaLaw& law, double target) {
  return fmt::format("lambda = {:.4g} / L^{:.3g}",
                     law.coefficient.value_or(std::exp(law.alpha + law.beta * std::log(target / (1 - target)))),
                     law.exponent);
}

Json calibration_json(const CalibrationReport& report) {
  const auto held_out = [](const std::vector<HeldOutRow>& rows) {
    Json list = Json::array();
    for (const HeldOutRow& row : rows)
      list.push_back({{"sample", row.sample},
                      {"context_length", row.context_length},
                      {"target", row.target},
                      {"lambda", row.lambda},
                      {"achieved", row.achieved}});
    return list;
  };
  const auto quality = [](const FitQuality& q) {
    return Json{{"points", q.points},
                {"residual", q.residual},
                {"sparsity", {q.sparsity.low, q.sparsity.high}},
                {"context_length", {q.context_length.low, q.context_length.high}}};
  };
  Json table = Json::array();
  for (const TargetRow& row : report.table) {
    Json lambdas = Json::array();
    for (const auto& lambda : row.lambdas) lambdas.push_back(lambda ? Json(*lambda) : Json());
    table.push_back({{"layer", row.layer}, {"head", row.head}, {"lambdas", lambdas}});
  }
  return {
      {"phase", phase_name(report.decider.phase)},
      {"rule", rule_name(report.decider.rule)},
      {"order", report.decider.order == VisitOrder::ascending ? "ascending" : "newest-first"},
      {"geometry", geometry_json(report.decider.geometry)},
      {"lambdas", report.lambdas},
      {"sparsity", sparsity_curve(report.curves, report.lambdas.size())},
      {"targets", report.targets},
      {"lambda_by_target", table},
      {"law",
       {{"alpha", report.law.law.alpha},
        {"beta", report.law.law.beta},
        {"exponent", report.law.law.exponent},
        {"exponent_fitted", report.law.exponent_fitted},
        {"quality", quality(report.law.quality)}}},
      {"scale_factor",
       {{"a", report.scale_factor.a}, {"b", report.scale_factor.b}, {"quality", quality(report.scale_factor.quality)}}},
      {"held_out", held_out(report.held_out)},
      {"held_out_scale_factor", held_out(report.held_out_scale_factor)},
      {"notes", report.notes}};
}

}  // namespace longhaul::cli
