// longhaul calibrate: which lambda gives which sparsity on a user's own tensors, as settings for Longhaul and for
// TensorRT-LLM.
#include <fmt/core.h>

#include <memory>
#include <optional>

#include "cli/attention_flags.h"
#include "cli/calibration.h"
#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/interrupt.h"
#include "longhaul/config.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

struct CalibrateOptions {
  std::vector<std::string> files, held_out;
  std::string phase = "both", rule = "max", granularity = "model", out, trtllm, checkpoint, model_name,
              transformers_model;
  double target = 0.5, target_decode = 0;
  std::vector<float> lambdas;
  std::optional<double> exponent;
  int threads = 0;
};

using Captures = std::vector<std::unique_ptr<Capture>>;

Captures open_captures(const std::vector<std::string>& paths) {
  Captures captures;
  for (const std::string& path : paths) captures.push_back(std::make_unique<Capture>(path));
  return captures;
}

void say_unused_lambda(const Capture& capture) {
  for (const CalibrationInput& input : capture.layers)
    if (input.args.lambda.kind != Lambda::Kind::none)
      return say("note: the lambda in {} is not used, since calibration measures many of its own", capture.name);
}

std::vector<Phase> phases_of(const CalibrateOptions& options) {
  if (options.phase == "both") return {Phase::prefill, Phase::decode};
  return {options.phase == "decode" ? Phase::decode : Phase::prefill};
}

double target_of(const CalibrateOptions& options, Phase phase) {
  return phase == Phase::decode && options.target_decode > 0 ? options.target_decode : options.target;
}

// Without files held out, the samples of other lengths are.
void split(std::vector<CalibrationSample>& samples, const std::vector<CalibrationSample>& from, bool by_file,
           bool held_out) {
  for (CalibrationSample sample : from) {
    if (by_file) {
      if (sample.held_out) continue;
      sample.held_out = held_out;
    }
    samples.push_back(std::move(sample));
  }
}

CalibrationReport run_calibration(const std::vector<CalibrationSample>& samples, const CalibrateOptions& options,
                                  Decider decider, const std::string& label) {
  CalibrationOptions settings;
  decider.threads = options.threads;
  settings.decider = decider;
  if (!options.lambdas.empty()) settings.lambdas = options.lambdas;
  settings.exponent = options.exponent;
  if (!decider.oracle && options.granularity == "layer") settings.granularity = Granularity::layer;
  if (!decider.oracle && options.granularity == "head") settings.granularity = Granularity::head;
  Progress bar(label, 1);
  settings.progress = [&bar](int64_t done, int64_t total) {
    bar.set(static_cast<double>(done) / static_cast<double>(total));
  };
  return calibrate(samples, settings);
}

CalibrationReport calibrate_own(const Captures& fit, const Captures& held_out, Phase phase,
                                const CalibrateOptions& options) {
  std::vector<CalibrationSample> samples;
  for (const auto& capture : fit)
    split(samples, samples_of_capture(capture->layers, phase, capture->name), !held_out.empty(), false);
  for (const auto& capture : held_out)
    split(samples, samples_of_capture(capture->layers, phase, capture->name), true, true);
  return run_calibration(samples, options,
                         {.phase = phase, .rule = options.rule == "sum" ? SkipRule::sum : SkipRule::max},
                         phase_name(phase) + ": calibrating");
}

CalibrationReport calibrate_published(const Captures& fit, const Captures& held_out, Phase phase,
                                      const CalibrateOptions& options) {
  std::vector<std::unique_ptr<PublishedSamples>> parts;
  std::vector<CalibrationSample> samples;
  for (const Captures* captures : {&fit, &held_out})
    for (const auto& capture : *captures) {
      parts.push_back(std::make_unique<PublishedSamples>(*capture, phase));
      split(samples, parts.back()->samples, !held_out.empty(), captures == &held_out);
    }
  return run_calibration(samples, options, tensorrt_llm_decider(phase),
                         phase_name(phase) + ": TensorRT-LLM's order, by the oracle");
}

void print_report(const CalibrationReport& report) {
  const std::string phase = phase_name(report.decider.phase);
  say("\n{}, rule {}: {}\n", phase, rule_name(report.decider.rule), geometry_text(report.decider.geometry));
  say("Sparsity at each lambda:\n{}", sparsity_table(report));
  say("Lambda for each sparsity, at the longest context:\n{}", lambda_table(report));
  say("fit: {} ({} points, residual {:.2f} in ln lambda){}", law_text(report.law.law), report.law.quality.points,
      report.law.quality.residual,
      report.law.exponent_fitted ? "" : "; the exponent was given, or the lengths are too alike to fit it");
  say("compatible form: factor = {:.4g} * exp({:.4g} * sparsity), lambda = factor / L\n", report.scale_factor.a,
      report.scale_factor.b);
  say("On samples that were not fitted:\n{}", held_out_table(report, false));
  for (const std::string& note : report.notes) say("note: {}", note);
}

void print_published(const CalibrationReport& report) {
  say("\n{} for TensorRT-LLM, by the oracle in its own order (oldest key first); {}", phase_name(report.decider.phase),
      geometry_text(report.decider.geometry));
  say("factor = {:.4g} * exp({:.4g} * sparsity)\n", report.scale_factor.a, report.scale_factor.b);
  print_text(held_out_table(report, true));
  for (const std::string& note : report.notes) say("note: {}", note);
}

std::string sample_names(const Captures& captures) {
  std::string text;
  for (const auto& capture : captures) text += (text.empty() ? "" : ", ") + capture->name;
  return text;
}

int run_calibrate(const Invocation& invocation, const CalibrateOptions& options) {
  if (!options.transformers_model.empty())
    throw Unsupported(
        "--model needs the Python package, which is not part of this version; capture the tensors to a file and pass "
        "it with --qkv");
  if (options.files.empty()) throw UsageError("--qkv is required");
  for (const auto& [name, path] : {std::pair{"--out", options.out}, std::pair{"--trtllm", options.trtllm},
                                   std::pair{"--checkpoint", options.checkpoint}})
    check_writable(name, path);
  std::vector<NamedPath> inputs;
  for (const std::string& file : options.files) inputs.emplace_back("--qkv", file);
  for (const std::string& file : options.held_out) inputs.emplace_back("--held-out", file);
  check_distinct(inputs, {{"--out", options.out},
                          {"--trtllm", options.trtllm},
                          {"--checkpoint", options.checkpoint},
                          {"--json", invocation.json}});
  const Captures fit = open_captures(options.files), held_out = open_captures(options.held_out);
  for (const Captures* captures : {&fit, &held_out})
    for (const auto& capture : *captures) say_unused_lambda(*capture);
  LonghaulConfig own;
  own.model = options.model_name;
  own.samples = sample_names(fit);
  SkipSoftmaxConfig factors, formula;
  Json json = result_header(invocation.command_line);
  for (const Phase phase : phases_of(options)) {
    const CalibrationReport report = calibrate_own(fit, held_out, phase, options);
    print_report(report);
    own.phases[phase] = phase_config(report, target_of(options, phase));
    json[phase_name(phase)] = calibration_json(report);
    if (options.trtllm.empty() && options.checkpoint.empty()) continue;
    const CalibrationReport published = calibrate_published(fit, held_out, phase, options);
    print_published(published);
    add_scale_factor(published, target_of(options, phase), factors);
    add_formula(published, target_of(options, phase), formula);
    json["tensorrt_llm"][phase_name(phase)] = calibration_json(published);
  }
  const std::string yaml = to_longhaul_yaml(own);
  if (options.out.empty()) say("\n{}", yaml);
  for (const auto& [path, text] :
       {std::pair{options.out, yaml}, std::pair{options.trtllm, options.trtllm.empty() ? "" : to_trtllm_yaml(factors)},
        std::pair{options.checkpoint, options.checkpoint.empty() ? "" : to_checkpoint_json(formula)}}) {
    if (path.empty()) continue;
    write_file(path, text);
    say("wrote {}", path);
  }
  write_json(invocation.json, json);
  return kFine;
}

}  // namespace

void add_calibrate(CLI::App& program, Invocation& invocation) {
  auto* command =
      program.add_subcommand("calibrate",
                             "Find the lambda for a wanted sparsity, by running the kernel on captured tensors\n\n"
                             "A file holds causal prefills of one request each: layer.N.query, layer.N.key, "
                             "layer.N.value, or query, key, value. Each is cut into "
                             "shorter texts, so that the law of the context length can be fitted.");
  auto options = std::make_shared<CalibrateOptions>();
  command->add_option("--qkv", options->files, "Captured tensors to fit")
      ->type_name("FILE.safetensors...")
      ->check(path_of("file"));
  command
      ->add_option("--held-out", options->held_out,
                   "Captured tensors to test the fit on (default: other lengths of the same files)")
      ->type_name("FILE.safetensors...")
      ->check(path_of("file"));
  command
      ->add_option("--model", options->transformers_model,
                   "Capture from a Transformers model (needs the Python package)")
      ->type_name("NAME");
  command->add_option("--phase", options->phase, "prefill, decode or both")
      ->check(CLI::IsMember({"prefill", "decode", "both"}))
      ->capture_default_str();
  command->add_option("--rule", options->rule, "max (published) or sum")
      ->check(CLI::IsMember({"max", "sum"}))
      ->capture_default_str();
  command->add_option("--target", options->target, "Sparsity to write into the settings")
      ->check(number_from(0.01, 0.99))
      ->capture_default_str();
  command->add_option("--target-decode", options->target_decode, "The same for decode, where it differs")
      ->check(number_from(0.01, 0.99));
  command->add_option("--granularity", options->granularity, "One law for the model, each layer or each head")
      ->check(CLI::IsMember({"model", "layer", "head"}))
      ->capture_default_str();
  command->add_option("--lambdas", options->lambdas, "Lambdas to measure, ascending (default: 24 from 1e-6 to 0.99)")
      ->delimiter(',')
      ->check(number_from(1e-38, 1));
  command
      ->add_option("--exponent", options->exponent,
                   "lambda falls as L^-X: 1 is the published law, about 0.5 keeps the error alike at every length "
                   "(default: fitted, so that the sparsity is alike)")
      ->type_name("X")
      ->check(number_from(0, 10));
  command->add_option("--name", options->model_name, "The model's name, for the settings file")->type_name("TEXT");
  command->add_option("--out", options->out, "Longhaul's settings")->type_name("FILE.yaml")->check(path_of("file"));
  command
      ->add_option("--trtllm", options->trtllm,
                   "Settings for TensorRT-LLM, calibrated by the oracle in its order and voting group")
      ->type_name("FILE.yaml")
      ->check(path_of("file"));
  command->add_option("--checkpoint", options->checkpoint, "The same as a checkpoint's json, with the formula")
      ->type_name("FILE.json")
      ->check(path_of("file"));
  command->add_option("--threads", options->threads, "Threads (0: LONGHAUL_THREADS, or all cores)")
      ->transform(whole_number(0, 1024));
  finish_command(
      *command, invocation,
      "  longhaul calibrate --qkv captured.safetensors --target 0.5 --out longhaul.yaml\n"
      "  longhaul calibrate --qkv a.safetensors b.safetensors --held-out c.safetensors --phase decode --rule sum\n"
      "  longhaul calibrate --qkv captured.safetensors --trtllm trtllm.yaml --checkpoint sparse.json",
      [&invocation, options] { return run_calibrate(invocation, *options); });
}

}  // namespace longhaul::cli
