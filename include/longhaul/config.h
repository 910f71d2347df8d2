// Settings for skipping: TensorRT-LLM's YAML, the form in a checkpoint's config.json, and Longhaul's own file.
//
// All functions here are thread-safe: they change nothing. Parsers take the text and the name of its source for
// messages; what they do not know they refuse (InvalidArgument, one sentence, with the line where the format has
// lines).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/attention.h"
#include "longhaul/export.h"
#include "longhaul/visit_order.h"

namespace longhaul {

/// Longest configuration that is read.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

/// A value for each phase; either may be missing.
template <class T>
struct ByPhase {
  std::optional<T> prefill, decode;
  std::optional<T>& operator[](Phase phase) { return phase == Phase::prefill ? prefill : decode; }
  const std::optional<T>& operator[](Phase phase) const { return phase == Phase::prefill ? prefill : decode; }
  bool operator==(const ByPhase&) const = default;
};

struct Interval {
  double low = 0, high = 0;
  bool contains(double value) const { return value >= low && value <= high; }
  bool operator==(const Interval&) const = default;
};

// --- TensorRT-LLM: lambda = threshold scale factor / context length -------------------------------------------------

/// "a * exp(b * target_sparsity)": the scale factor by target sparsity. Names allowed in the text: a, b, log_a,
/// target_sparsity, exp and log; + - * / ** ^ and parentheses.
struct LONGHAUL_API FactorFormula {
  std::string text = "a * exp(b * target_sparsity)";
  ByPhase<std::map<std::string, double>> coefficients;
  /// Where it was fitted; files by others do not say.
  ByPhase<Interval> fitted_target_sparsity;

  /// Throws InvalidArgument where the phase has no coefficients, the target lies outside [0, 1] or the fitted range, or
  /// the result is not a finite number >= 0.
  double evaluate(Phase phase, double target_sparsity) const;
  bool operator==(const FactorFormula&) const = default;
};

/// `sparse_attention_config` with algorithm skip_softmax. A phase without values is dense.
struct LONGHAUL_API SkipSoftmaxConfig {
  ByPhase<double> threshold_scale_factor;
  ByPhase<double> target_sparsity;
  std::optional<FactorFormula> formula;           ///< checkpoint only
  std::vector<std::string> targets;               ///< checkpoint only: module types
  std::vector<std::string> ignore;                ///< checkpoint only: layer names (with *, ?, [...]) that stay dense
  std::optional<double> disabled_until_timestep;  ///< visual generation only

  bool ignores(const std::string& layer_name) const;
  bool operator==(const SkipSoftmaxConfig&) const = default;
};

/// Reads `sparse_attention_config` of an options file; its other top-level keys belong to the engine and are left
/// alone.
LONGHAUL_API SkipSoftmaxConfig parse_trtllm_yaml(std::string_view text, std::string_view source);
/// Throws InvalidArgument for settings that only the checkpoint form can hold.
LONGHAUL_API std::string to_trtllm_yaml(const SkipSoftmaxConfig& config);

/// Reads `sparse_attention_config` of a checkpoint's config.json. Throws InvalidArgument unless exactly one of its
/// groups is skip_softmax (or softmax_skip, its former name); groups of other algorithms are no concern of ours.
LONGHAUL_API SkipSoftmaxConfig parse_checkpoint_json(std::string_view text, std::string_view source);
/// An object with the one key `sparse_attention_config`, to be merged into config.json.
LONGHAUL_API std::string to_checkpoint_json(const SkipSoftmaxConfig& config);

struct ScaleFactor {
  double value = 0;
  std::string origin;  ///< "threshold_scale_factor of the user", "target_sparsity 0.5 of the checkpoint" …
};

/// The factor of a phase: the user's values override the checkpoint's, and within one of them threshold_scale_factor
/// overrides target_sparsity, as in TensorRT-LLM. nullopt: dense. `checkpoint` may be null. Throws InvalidArgument
/// where a target sparsity meets no formula.
LONGHAUL_API std::optional<ScaleFactor> threshold_scale_factor(Phase phase, const SkipSoftmaxConfig& user,
                                                               const SkipSoftmaxConfig* checkpoint);

// --- Longhaul's own file --------------------------------------------------------------------------------------------

/// lambda = min(1, c * L^-exponent), with c given or c = exp(alpha + beta * logit(target sparsity)). Exponent 1 is the
/// compatible form, c its threshold scale factor. c = 0 never skips.
struct LONGHAUL_API LambdaLaw {
  std::optional<double> coefficient;  ///< c; if absent, alpha and beta hold
  double alpha = 0, beta = 0;
  double exponent = 1;

  double lambda(double target_sparsity, double context_length) const;
  bool operator==(const LambdaLaw&) const = default;
};

/// The law of one layer, or of one of its heads (query heads in prefill, KV heads in decode).
struct LawOverride {
  int64_t layer = 0;
  std::optional<int64_t> head;
  LambdaLaw law;
  bool operator==(const LawOverride&) const = default;
};

/// How one phase was calibrated.
struct LONGHAUL_API PhaseConfig {
  SkipRule rule = SkipRule::max;
  std::string key_test = "exact";
  VisitOrder order = VisitOrder::newest_first;
  Geometry geometry{};
  LambdaLaw law;
  std::vector<LawOverride> overrides;     ///< a head's goes before its layer's, a layer's before `law`
  std::optional<double> target_sparsity;  ///< required where a law has no coefficient
  Interval fitted_target_sparsity{};
  Interval fitted_context_length{};
  bool operator==(const PhaseConfig&) const;
};

struct LONGHAUL_API LonghaulConfig {
  static constexpr int kVersion = 1;
  std::string model, samples;  ///< provenance, free text
  ByPhase<PhaseConfig> phases;

  /// The threshold for one head of one layer. Throws InvalidArgument where the phase was not calibrated, where layer,
  /// head or length make no sense, and, unless `extrapolate`, where the context length lies outside the fitted range.
  float lambda_for(Phase phase, int64_t layer, int64_t head, int64_t context_length, bool extrapolate = false) const;
  /// Throws InvalidArgument unless the phase was calibrated for this rule, order and geometry: lambdas do not carry
  /// over.
  void check_calibrated_for(Phase phase, SkipRule rule, VisitOrder order, const Geometry& geometry) const;
  bool operator==(const LonghaulConfig&) const = default;
};

LONGHAUL_API LonghaulConfig parse_longhaul_yaml(std::string_view text, std::string_view source);
LONGHAUL_API std::string to_longhaul_yaml(const LonghaulConfig& config);
/// Throws InvalidArgument where a value lies outside what the file format allows; parsing and writing both call it.
LONGHAUL_API void check_config(const LonghaulConfig& config, std::string_view source);

}  // namespace longhaul
