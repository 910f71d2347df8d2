#include "cli/attention_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "attention/params.h"
#include "attention/tile_plan.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/support/console.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

// 0.01F as 0.01, not as the double 0.009999999776.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace

void AttentionFlags::add_phase(CLI::App& command) {
  command.add_option("--phase", phase, "Which kernel: prefill or decode (1 to 16 query tokens a request)")
      ->check(CLI::IsMember({"prefill", "decode"}))
      ->capture_default_str();
}

void AttentionFlags::add_mask_and_scores(CLI::App& command) {
  auto* causal_flag =
      command.add_flag("--causal", causal, "A query sees no later key, bottom-right aligned (the default)");
  command.add_flag("--full", full, "A query sees all keys")->excludes(causal_flag);
  command.add_option("--window-left", window_left, "A query at position p sees keys from p - N on (-1: all)")
      ->type_name("N")
      ->transform(whole_number(-1, kNoLimit))
      ->capture_default_str();
  command.add_option("--soft-cap", soft_cap, "Scores become C * tanh(score / C) (0: off)")
      ->type_name("C")
      ->check(number_from(0));
  command.add_option("--softmax-scale", softmax_scale, "Factor on query x key (0: the file's, or 1/sqrt(head size))")
      ->type_name("X")
      ->check(number_from(0));
}

void AttentionFlags::add_skipping(CLI::App& command) {
  auto* scalar = command
                     .add_option("--lambda", lambda,
                                 "Skip blocks whose scores lie ln(lambda) below the reference, 0 to 1 "
                                 "(not given: the file's, or dense)")
                     ->type_name("X")
                     ->check(number_from(0, 1));
  command
      .add_option("--scale-factor", scale_factor,
                  "lambda = F / context length of each request, cut to 1 (the published law)")
      ->type_name("F")
      ->check(number_from(0))
      ->excludes(scalar);
  command
      .add_option(
          "--config", config,
          "Take rule and lambda from this file: Longhaul's or TensorRT-LLM's YAML, or a checkpoint's config.json")
      ->type_name("FILE")
      ->check(path_of("file"))
      ->excludes("--lambda")
      ->excludes("--scale-factor");
  command.add_option("--layer", layer, "With --config: the layer that the tensors are of")
      ->type_name("N")
      ->transform(whole_number(0, 1 << 20))
      ->needs("--config");
  command.add_flag("--extrapolate", extrapolate, "With --config: allow a context length outside the calibrated range")
      ->needs("--config");
  add_rule(command);
}

void AttentionFlags::add_rule(CLI::App& command) {
  command
      .add_option("--rule", rule,
                  "Compare with the largest score so far (max, the published rule and the default) or with the sum "
                  "kept so far (sum)")
      ->check(CLI::IsMember({"max", "sum"}));
}

void AttentionFlags::add_threads(CLI::App& command) {
  command.add_option("--threads", threads, "Threads (0: LONGHAUL_THREADS, or all cores)")
      ->type_name("N")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
}

Phase AttentionFlags::phase_value() const { return phase == "decode" ? Phase::decode : Phase::prefill; }

SkipRule AttentionFlags::rule_value() const { return rule == "sum" ? SkipRule::sum : SkipRule::max; }

void AttentionFlags::apply_softmax_scale(AttentionArgs& args, std::vector<std::string>& notes) const {
  const float of_file = args.softmax_scale;
  if (softmax_scale > 0) args.softmax_scale = softmax_scale;
  if (of_file == 0) return;
  notes.push_back(softmax_scale == 0
                      ? fmt::format("softmax scale {}, from the file's metadata", of_file)
                      : fmt::format("the softmax scale {} in the file's metadata is not used, since --softmax-scale "
                                    "gives {}",
                                    of_file, softmax_scale));
}

void AttentionFlags::apply(AttentionArgs& args, std::vector<float>& lambda_storage,
                           std::vector<std::string>& notes) const {
  args.causal = !full;
  args.window_left = window_left;
  args.soft_cap = soft_cap;
  apply_softmax_scale(args, notes);
  args.batch_invariant = batch_invariant;
  args.threads = threads;
  args.rule = rule_value();
  const char* flag = lambda ? "--lambda" : scale_factor ? "--scale-factor" : config.empty() ? nullptr : "--config";
  if (args.lambda.kind != Lambda::Kind::none)
    notes.push_back(flag == nullptr ? std::string("lambda is that of the file")
                                    : fmt::format("the file's lambda is not used, since {} gives another", flag));
  if (flag != nullptr) args.lambda = Lambda::none();
  if (lambda) args.lambda = Lambda::scalar(static_cast<float>(*lambda));
  // A factor and a file's law read the lengths and heads, which must be what they claim to be first.
  if (scale_factor || !config.empty()) make_input_params(args, phase_value());
  if (scale_factor) apply_scale_factor(*scale_factor, args, lambda_storage, notes);
  if (!config.empty())
    apply_config({config, layer, extrapolate, !rule.empty()}, phase_value(), args, lambda_storage, notes);
}

void apply_scale_factor(double factor, AttentionArgs& args, std::vector<float>& storage,
                        std::vector<std::string>& notes) {
  const std::vector<int64_t> lengths = context_lengths(args);
  const int64_t heads = args.query.shape[1];
  storage.clear();
  bool capped = false;
  for (const int64_t length : lengths) {
    const CappedLambda lambda = length > 0 ? lambda_from_scale_factor(factor, length) : CappedLambda{0, false};
    capped = capped || lambda.capped;
    storage.insert(storage.end(), static_cast<size_t>(heads), lambda.lambda);
  }
  if (capped)
    notes.push_back(fmt::format("the scale factor {} exceeds a context length, so lambda was cut to 1 there", factor));
  if (lengths.size() == 1) {
    args.lambda = Lambda::scalar(storage.empty() ? 0.0F : storage[0]);
  } else {
    args.lambda =
        Lambda::per_head(TensorView(storage.data(), DType::f32, {static_cast<int64_t>(lengths.size()), heads}));
  }
}

std::vector<int64_t> context_lengths(const AttentionArgs& args) {
  std::vector<int64_t> lengths;
  if (args.kv_lengths.given()) {
    const auto* values = static_cast<const int32_t*>(args.kv_lengths.data);
    lengths.assign(values, values + args.kv_lengths.size());
  } else {
    const auto* values = static_cast<const int32_t*>(args.cu_seqlens_kv.data);
    for (int64_t b = 0; b + 1 < args.cu_seqlens_kv.size(); ++b) lengths.push_back(values[b + 1] - values[b]);
  }
  return lengths;
}

Geometry kernel_geometry(Phase phase) { return phase == Phase::decode ? kCpuDecode : kCpuPrefill; }

Json lambda_json(const AttentionArgs& args) {
  switch (args.lambda.kind) {
    case Lambda::Kind::none:
      return "none";
    case Lambda::Kind::scalar:
      return shortest(args.lambda.value);
    case Lambda::Kind::per_head: {
      if (args.lambda.values.size() == 0) return "none";  // no request
      const auto* values = static_cast<const float*>(args.lambda.values.data);
      const auto [low, high] = std::minmax_element(values, values + args.lambda.values.size());
      if (*low == *high) return shortest(*low);
      return fmt::format("{} to {}, by request and head", *low, *high);
    }
  }
  return nullptr;
}

Json geometry_json(const Geometry& geometry) {
  return {{"tile_keys", geometry.tile_keys}, {"block_keys", geometry.block_keys}, {"group_rows", geometry.group_rows}};
}

std::string rule_name(SkipRule rule) { return rule == SkipRule::sum ? "sum" : "max"; }
std::string phase_name(Phase phase) { return phase == Phase::decode ? "decode" : "prefill"; }

std::string geometry_text(const Geometry& geometry) {
  const std::string rows = geometry.group_rows > 0 ? fmt::format("{} query rows of a head", geometry.group_rows)
                                                   : "all query tokens and heads of a KV head";
  return fmt::format("{} vote on blocks of {} keys, in tiles of {} keys", rows, geometry.block_keys,
                     geometry.tile_keys);
}

}  // namespace longhaul::cli
