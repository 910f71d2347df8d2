// Calibration: which lambda gives which sparsity, measured by the deployed kernel itself, and laws fitted to it.
//
// Sparsity is skipped over visible scores, here as everywhere. A calibration holds for one phase, rule, visit order and
// geometry.
//
// All functions here are thread-safe: they change nothing but their results. Callbacks run on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/attention.h"
#include "longhaul/config.h"
#include "longhaul/export.h"

namespace longhaul {

// --- samples --------------------------------------------------------------------------------------------------------

/// One layer's part of a sample: the inputs of a call (outputs, lambda, counters and workspace are ignored). The
/// caller's memory must outlive it; lengths made by the functions below are kept alive by `storage`.
struct CalibrationInput {
  int layer = 0;
  AttentionArgs args;
  std::shared_ptr<const std::vector<int32_t>> storage;
};

/// Activations of one text at one context length.
struct CalibrationSample {
  std::string name;
  int64_t context_length = 0;
  std::vector<CalibrationInput> layers;
  bool held_out = false;  ///< not fitted, but used to test the fit
};

/// Queries [begin, end) on the keys [0, end) of a captured causal prefill (one request, ragged, as many queries as
/// keys); begin 0 is the prefill of a shorter text, begin > 0 a chunk of it. Throws InvalidArgument where `capture` is
/// no such prefill.
LONGHAUL_API CalibrationSample prefill_sample(std::span<const CalibrationInput> capture, int64_t begin, int64_t end);
/// Decode steps of the same: `tokens` single queries, each on the keys up to itself: the last at `length` - 1, the
/// others spread over the sixteenth before it, or right before it where that is fewer than `tokens`. `length` is
/// rounded down to whole pages of 32 keys, which the sample's name and context_length say. Throws InvalidArgument as
/// above, and unless length is from 32 to that of the capture and tokens from 1 to the rounded length.
LONGHAUL_API CalibrationSample decode_sample(std::span<const CalibrationInput> capture, int64_t length,
                                             int tokens = 32);
/// Samples of several lengths from one capture of length L: L, L/2 and L/4 to fit, 3L/4 and 3L/8 held out.
LONGHAUL_API std::vector<CalibrationSample> samples_of_capture(std::span<const CalibrationInput> capture, Phase phase,
                                                               const std::string& name);

// --- measuring ------------------------------------------------------------------------------------------------------

/// 24 values from 1e-6 to 0.99, evenly spaced in the logarithm.
LONGHAUL_API std::vector<float> default_lambda_grid();

/// What one voting head of one layer of one sample skips at each lambda of the grid.
struct SkipCurve {
  int sample = 0, layer = 0, head = 0;
  int64_t visible = 0;
  std::vector<int64_t> skipped;
};

/// Who decides what is skipped.
struct Decider {
  Phase phase = Phase::prefill;
  SkipRule rule = SkipRule::max;
  /// false: the kernel this library would run. true: the oracle in a geometry and order of another library (rule max
  /// only).
  bool oracle = false;
  VisitOrder order = VisitOrder::newest_first;  ///< of the oracle
  Geometry geometry{};                          ///< of the oracle
  int threads = 0;                              ///< of the kernel
};

/// TensorRT-LLM on Hopper: tiles ascending; in prefill 64 rows x 128 keys, in decode 64 keys and the query heads of a
/// KV head, not split (a split there starts from its own maximum and skips less).
LONGHAUL_API Decider tensorrt_llm_decider(Phase phase);

/// Called with the work done and all of it, after each call of a kernel.
using Progress = std::function<void(int64_t done, int64_t total)>;

/// One dense pass for each 32 lambdas (kernel) or one pass for all (oracle). `lambdas` ascend within (0, 1].
LONGHAUL_API std::vector<SkipCurve> measure_skip_curves(std::span<const CalibrationSample> samples,
                                                        const Decider& decider, std::span<const float> lambdas,
                                                        const Progress& progress = {});

/// A threshold for each sample, layer and voting head.
using LambdaOf = std::function<float(int sample, int layer, int head)>;
/// The sparsity that exactly these thresholds reach, [settings][samples]: by runs of the kernel, not by interpolation.
LONGHAUL_API std::vector<std::vector<double>> measure_sparsity(std::span<const CalibrationSample> samples,
                                                               const Decider& decider,
                                                               std::span<const LambdaOf> settings,
                                                               const Progress& progress = {});

// --- reading the curves ---------------------------------------------------------------------------------------------

/// Sparsity at each lambda over all curves that `keep` accepts. 0 where nothing is visible.
LONGHAUL_API std::vector<double> sparsity_curve(std::span<const SkipCurve> curves, size_t lambdas,
                                                const std::function<bool(const SkipCurve&)>& keep = {});
/// The lambda that reaches `target`, interpolated in ln(lambda); nullopt where the grid does not reach it.
LONGHAUL_API std::optional<double> lambda_at_sparsity(std::span<const float> lambdas, std::span<const double> sparsity,
                                                      double target);

// --- fitting --------------------------------------------------------------------------------------------------------

struct FitPoint {
  double lambda = 0, context_length = 0, sparsity = 0;
};

/// Points outside this sparsity are not fitted: there lambda hardly moves it.
inline constexpr Interval kFittedSparsity{0.1, 0.9};

struct FitQuality {
  int points = 0;
  Interval sparsity{}, context_length{};  ///< of the points
  double residual = 0;                    ///< root mean square of ln(lambda) - ln(fit)
};

/// factor = a * exp(b * sparsity), lambda = min(1, factor / context length); least squares in ln(factor).
struct ScaleFactorFit {
  double a = 0, b = 0;
  FitQuality quality;
};
/// Throws InvalidArgument where fewer than 3 points have a sparsity within kFittedSparsity, or sparsity does not rise
/// with lambda.
LONGHAUL_API ScaleFactorFit fit_scale_factor(std::span<const FitPoint> points);

/// lambda = min(1, exp(alpha + beta * logit(sparsity)) * L^-exponent); least squares in ln(lambda). Bounded: lambda
/// stays within (0, 1] whatever the target. The fitted exponent keeps the *sparsity* at its target for every length,
/// and a longer context skips more at one lambda: on the shipped activations it is about 2 in prefill. What keeps the
/// *error* constant is nearer 0.5 (0.4 for rule max, 0.6 for rule sum, docs/skip-softmax.md), with less sparsity on
/// short texts and more on long ones: give that exponent where quality matters more than meeting the target at each
/// length.
struct LambdaLawFit {
  LambdaLaw law;
  /// false: the exponent was given, or all lengths lie within a factor of 1.2 and it is the compatible 1.
  bool exponent_fitted = false;
  FitQuality quality;
};
/// Throws as fit_scale_factor. A fitted exponent below 0 is cut to 0 and the rest fitted again; a given one must be >=
/// 0.
LONGHAUL_API LambdaLawFit fit_lambda_law(std::span<const FitPoint> points, std::optional<double> exponent = {});

// --- all of it ------------------------------------------------------------------------------------------------------

enum class Granularity { model, layer, head };

struct CalibrationOptions {
  Decider decider;
  std::vector<float> lambdas = default_lambda_grid();
  std::vector<double> targets{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
  bool fit_exponent = true;        ///< false: `exponent`, or the compatible 1
  std::optional<double> exponent;  ///< given: used, not fitted
  /// layer or head: laws that give each of them the target. One lambda for all (model) lets each skip what it can
  /// afford. A layer or head with fewer than 3 points to fit, or whose sparsity does not rise with lambda, follows the
  /// law of the model, and a note says so.
  Granularity granularity = Granularity::model;
  Progress progress;
};

/// Lambda for each target at the longest fitted sample; head or layer -1: all of them.
struct TargetRow {
  int layer = -1, head = -1;
  std::vector<std::optional<double>> lambdas;  ///< by target
};

struct HeldOutRow {
  std::string sample;
  int64_t context_length = 0;
  double target = 0, lambda = 0;  ///< lambda of the model's law
  double achieved = 0;            ///< measured with that lambda, not interpolated
};

struct CalibrationReport {
  Decider decider;  ///< with the kernel's geometry and order filled in
  std::vector<float> lambdas;
  std::vector<double> targets;
  std::vector<SkipCurve> curves;  ///< of the fitted samples
  std::vector<TargetRow> table;   ///< all; then each layer; then each head
  LambdaLawFit law;
  std::vector<LawOverride> overrides;
  ScaleFactorFit scale_factor;
  std::vector<HeldOutRow> held_out;               ///< the law
  std::vector<HeldOutRow> held_out_scale_factor;  ///< the compatible form
  std::vector<std::string> notes;                 ///< what was left out, and why; one sentence each
};

/// Throws InvalidArgument where there is no sample to fit or the samples do not suit the phase.
LONGHAUL_API CalibrationReport calibrate(std::span<const CalibrationSample> samples, const CalibrationOptions& options);

/// The report as a section of our own configuration. Throws InvalidArgument where the target lies outside the fitted
/// range.
LONGHAUL_API PhaseConfig phase_config(const CalibrationReport& report, double target_sparsity);
/// Adds the scale factor of the report's phase, for TensorRT-LLM's YAML (a number) …
LONGHAUL_API void add_scale_factor(const CalibrationReport& report, double target_sparsity, SkipSoftmaxConfig& config);
/// … or for the checkpoint's json (the formula with its fitted range).
LONGHAUL_API void add_formula(const CalibrationReport& report, double target_sparsity, SkipSoftmaxConfig& config);

}  // namespace longhaul
