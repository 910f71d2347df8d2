#include "cli/demo/settings.h"

#include <fmt/core.h>

#include <memory>

#include "cli/attention_flags.h"
#include "cli/calibration.h"
#include "cli/support/console.h"
#include "longhaul/calibrate.h"
#include "longhaul/config.h"

namespace longhaul::cli {
namespace {

CalibrationReport run(const std::vector<CalibrationSample>& samples, const Decider& decider, double target,
                      const std::string& label) {
  CalibrationOptions options;
  options.decider = decider;
  options.targets = {target};
  Progress bar(label, 1);
  options.progress = [&bar](int64_t done, int64_t total) {
    bar.set(static_cast<double>(done) / static_cast<double>(total));
  };
  return calibrate(samples, options);
}

void add_rows(Table& table, const std::string& who, const std::string& setting, const CalibrationReport& report,
              bool scale_factor) {
  for (const HeldOutRow& row : scale_factor ? report.held_out_scale_factor : report.held_out)
    table.add({phase_name(report.decider.phase), who, setting, std::to_string(row.context_length),
               short_number(row.lambda), percent(row.target), percent(row.achieved)});
}

}  // namespace

SettingsOutcome calibrate_settings(const std::string& data, const std::string& model, double target, int threads) {
  std::vector<std::unique_ptr<Capture>> captures;
  for (const std::string& path : activation_files(data)) captures.push_back(std::make_unique<Capture>(path));
  LonghaulConfig own;
  own.model = model;
  SkipSoftmaxConfig factors;
  SettingsOutcome outcome;
  Table table({"phase", "for", "setting", "held-out length", "lambda there", "target", "achieved"});
  table.words();
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    std::vector<CalibrationSample> samples, published_samples;
    std::vector<std::unique_ptr<PublishedSamples>> parts;
    for (const auto& capture : captures) {
      for (CalibrationSample& sample : samples_of_capture(capture->layers, phase, capture->name))
        samples.push_back(std::move(sample));
      parts.push_back(std::make_unique<PublishedSamples>(*capture, phase));
      published_samples.insert(published_samples.end(), parts.back()->samples.begin(), parts.back()->samples.end());
    }
    const CalibrationReport report =
        run(samples, {.phase = phase, .threads = threads}, target, phase_name(phase) + ": calibrating");
    const CalibrationReport published = run(published_samples, tensorrt_llm_decider(phase), target,
                                            phase_name(phase) + ": TensorRT-LLM's order, by the oracle");
    own.phases[phase] = phase_config(report, target);
    add_scale_factor(published, target, factors);
    add_rows(table, "Longhaul", law_text(report.law.law, target), report, false);
    add_rows(table, "TensorRT-LLM",
             fmt::format("lambda = {:.4g} / L", factors.threshold_scale_factor[phase].value_or(0)), published, true);
    outcome.json[phase_name(phase)] = {{"longhaul", calibration_json(report)},
                                       {"tensorrt_llm", calibration_json(published)}};
  }
  own.samples = captures.front()->name;
  outcome.longhaul_yaml = to_longhaul_yaml(own);
  outcome.trtllm_yaml = to_trtllm_yaml(factors);
  say("\nSETTINGS FOR {:.0f} % SPARSITY, calibrated on lengths L, L/2 and L/4 of this text and tested on lengths "
      "between them",
      100 * target);
  say("TensorRT-LLM visits the oldest key first, in other voting groups: its factor comes from the oracle in that "
      "order, not "
      "from our kernel.");
  say("Our exponents keep the sparsity alike at every length; longhaul calibrate --exponent 0.5 keeps the error nearer "
      "alike.\n");
  print_text(table.text());
  return outcome;
}

}  // namespace longhaul::cli
