#include "cli/config_file.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/attention_flags.h"
#include "io/atomic_file.h"
#include "longhaul/config.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

enum class Form { longhaul_yaml, trtllm_yaml, checkpoint_json };

// JSON begins with a brace; TensorRT-LLM's YAML has its one key at the start of a line.
Form form_of(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return Form::checkpoint_json;
  constexpr std::string_view kKey = "sparse_attention_config:";
  const bool trtllm = text.starts_with(kKey) || text.find("\n" + std::string(kKey)) != std::string::npos;
  return trtllm ? Form::trtllm_yaml : Form::longhaul_yaml;
}

void apply_longhaul(const LonghaulConfig& config, const ConfigChoice& choice, Phase phase, AttentionArgs& args,
                    std::vector<float>& storage) {
  const auto& calibrated = config.phases[phase];
  if (!calibrated) throw InvalidArgument(fmt::format("'{}' has no calibration for {}", choice.path, phase_name(phase)));
  if (choice.layer < 0 && !calibrated->overrides.empty())
    throw InvalidArgument(
        fmt::format("'{}' has laws by layer, so --layer must say which one the tensors are of", choice.path));
  if (!choice.rule_given) args.rule = calibrated->rule;
  config.check_calibrated_for(phase, args.rule, VisitOrder::newest_first, kernel_geometry(phase));
  const int64_t heads = args.query.shape[1], heads_kv = args.key.shape[args.key.rank - 2];
  const std::vector<int64_t> lengths = context_lengths(args);
  for (const int64_t length : lengths)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t voting_head = phase == Phase::decode ? h / (heads / heads_kv) : h;
      storage.push_back(
          length == 0 ? 0.0F
                      : config.lambda_for(phase, std::max(choice.layer, 0), voting_head, length, choice.extrapolate));
    }
  args.lambda = Lambda::per_head(TensorView(storage.data(), DType::f32, {static_cast<int64_t>(lengths.size()), heads}));
}

void apply_factor(const SkipSoftmaxConfig& config, const ConfigChoice& choice, Phase phase, AttentionArgs& args,
                  std::vector<float>& storage, std::vector<std::string>& notes) {
  const std::optional<ScaleFactor> factor = threshold_scale_factor(phase, config, nullptr);
  if (!factor) {
    notes.push_back(fmt::format("'{}' has no value for {}, so the call is dense", choice.path, phase_name(phase)));
    return;
  }
  notes.push_back(fmt::format("scale factor {} ({}) was calibrated for another kernel's order and voting group",
                              factor->value, factor->origin));
  apply_scale_factor(factor->value, args, storage, notes);
}

}  // namespace

void apply_config(const ConfigChoice& choice, Phase phase, AttentionArgs& args, std::vector<float>& storage,
                  std::vector<std::string>& notes) {
  const std::string text = read_text_file(choice.path, kMaxConfigBytes);
  switch (form_of(text)) {
    case Form::longhaul_yaml:
      return apply_longhaul(parse_longhaul_yaml(text, choice.path), choice, phase, args, storage);
    case Form::trtllm_yaml:
      return apply_factor(parse_trtllm_yaml(text, choice.path), choice, phase, args, storage, notes);
    case Form::checkpoint_json:
      return apply_factor(parse_checkpoint_json(text, choice.path), choice, phase, args, storage, notes);
  }
}

}  // namespace longhaul::cli
