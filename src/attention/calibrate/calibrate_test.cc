#include "longhaul/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "attention/reference/reference.h"
#include "attention/tile_plan.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

// Layers whose key blocks have levels spread over 14 nats along the way all queries look, so that every lambda skips
// something.
class Capture {
 public:
  static constexpr int kHeadsQ = 4, kHeadsKv = 2, kD = 64, kLayers = 2;

  explicit Capture(int64_t tokens) : lengths_{0, static_cast<int32_t>(tokens)} {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> level(0, 14);
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<float> q(tokens * kHeadsQ * kD), k(tokens * kHeadsKv * kD), v(tokens * kHeadsKv * kD);
      for (float& x : v) x = normal(random);
      for (float& x : q) x = 0.1F * normal(random);
      for (float& x : k) x = 0.1F * normal(random);
      for (int64_t row = 0; row < tokens * kHeadsQ; ++row)
        q[row * kD] = 8;  // scale 1/8: the score is the key's first element
      std::vector<float> levels;
      for (int64_t block = 0; block <= tokens / 16; ++block) levels.push_back(level(random));
      for (int64_t row = 0; row < tokens * kHeadsKv; ++row) k[row * kD] += levels[row / kHeadsKv / 16];
      data_.push_back({std::move(q), std::move(k), std::move(v)});
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      CalibrationInput input;
      input.layer = 10 * layer;
      input.args.query = TensorView(data_[layer][0].data(), DType::f32, {tokens, kHeadsQ, kD});
      input.args.key = TensorView(data_[layer][1].data(), DType::f32, {tokens, kHeadsKv, kD});
      input.args.value = TensorView(data_[layer][2].data(), DType::f32, {tokens, kHeadsKv, kD});
      input.args.cu_seqlens_q = TensorView(lengths_.data(), DType::i32, {2});
      input.args.cu_seqlens_kv = TensorView(lengths_.data(), DType::i32, {2});
      inputs.push_back(input);
    }
  }

  std::vector<CalibrationInput> inputs;

 private:
  std::vector<std::array<std::vector<float>, 3>> data_;
  std::vector<int32_t> lengths_;
};

Capture& capture() {
  static Capture instance(1024);
  return instance;
}

int64_t total_visible(const std::vector<SkipCurve>& curves) {
  int64_t sum = 0;
  for (const SkipCurve& curve : curves) sum += curve.visible;
  return sum;
}

TEST(Samples, PrefillPrefixesAndChunksSeeWhatTheyShould) {
  const float lambdas[] = {0.1F};
  const auto visible = [&](int64_t begin, int64_t end) {
    const CalibrationSample sample = prefill_sample(capture().inputs, begin, end);
    EXPECT_EQ(sample.context_length, end);
    return total_visible(measure_skip_curves(std::vector{sample}, Decider{}, lambdas));
  };
  constexpr int64_t kCalls = Capture::kLayers * Capture::kHeadsQ;
  EXPECT_EQ(visible(0, 1024), kCalls * 1024 * 1025 / 2);
  EXPECT_EQ(visible(0, 300), kCalls * 300 * 301 / 2);
  EXPECT_EQ(visible(512, 1024), kCalls * (1024 * 1025 / 2 - 512 * 513 / 2));
}

TEST(Samples, DecodeStepsSeeAllKeysUpToThemselves) {
  const CalibrationSample sample = decode_sample(capture().inputs, 1000, 8);
  EXPECT_EQ(sample.context_length, 992) << "whole pages of 32";
  const float lambdas[] = {0.1F};
  const auto curves = measure_skip_curves(std::vector{sample}, Decider{.phase = Phase::decode}, lambdas);
  ASSERT_EQ(curves.size(), static_cast<size_t>(Capture::kLayers * Capture::kHeadsKv));
  int64_t keys = 0;
  for (int i = 0; i < 8; ++i) keys += 992 - i * (992 / 16 / 8);
  for (const SkipCurve& curve : curves) EXPECT_EQ(curve.visible, keys * Capture::kHeadsQ / Capture::kHeadsKv);
}

TEST(Samples, ACaptureThatIsNoCausalPrefillIsRefused) {
  std::vector<CalibrationInput> inputs = capture().inputs;
  EXPECT_THROW(prefill_sample({}, 0, 1), InvalidArgument);
  EXPECT_THROW(prefill_sample(inputs, 5, 5), InvalidArgument);
  EXPECT_THROW(prefill_sample(inputs, 0, 1025), InvalidArgument);
  inputs[1].args.causal = false;
  EXPECT_THROW(prefill_sample(inputs, 0, 64), InvalidArgument);
  inputs = capture().inputs;
  inputs[1].args.key.shape[0] = 1000;
  EXPECT_THROW(prefill_sample(inputs, 0, 64), InvalidArgument);
}

TEST(Samples, ADecodeSampleOutsideTheCaptureIsRefusedNotClamped) {
  const auto message = [](int64_t length, int tokens) -> std::string {
    try {
      return decode_sample(capture().inputs, length, tokens).name;
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  };
  for (const int64_t length : {-1, 0, 31, 1025, 100000})
    EXPECT_EQ(message(length, 8), "length is " + std::to_string(length) +
                                      "; allowed for a decode sample are 32 to the 1024 tokens of the capture");
  for (const int tokens : {-1, 0, 993, 100000})
    EXPECT_EQ(message(1000, tokens),
              "tokens is " + std::to_string(tokens) + "; allowed for a decode sample of length 992 are 1 to 992");
  EXPECT_EQ(message(32, 32), "decode at 32");
  EXPECT_EQ(message(1024, 1024), "decode at 1024");
  EXPECT_EQ(message(1000, 992), "decode at 992");
  // A capture too short for a quarter of it to be a sample.
  std::vector<CalibrationInput> shorter = capture().inputs;
  for (CalibrationInput& input : shorter)
    for (TensorView* view : {&input.args.query, &input.args.key, &input.args.value}) view->shape[0] = 100;
  for (CalibrationInput& input : shorter) input.args.cu_seqlens_q = input.args.cu_seqlens_kv = {};
  EXPECT_THROW(samples_of_capture(shorter, Phase::decode, "short"), InvalidArgument);
}

struct Case {
  Phase phase;
  SkipRule rule;
};
class Measure : public testing::TestWithParam<Case> {};

TEST_P(Measure, OnePassTellsWhatEachLambdaReallySkips) {
  const Decider decider{.phase = GetParam().phase, .rule = GetParam().rule};
  const auto samples = samples_of_capture(capture().inputs, decider.phase, "synthetic");
  const std::vector<float> grid = default_lambda_grid();
  const auto curves = measure_skip_curves(samples, decider, grid);
  std::vector<LambdaOf> settings;
  for (const size_t i : {4U, 12U, 20U, 23U}) settings.emplace_back([&grid, i](int, int, int) { return grid[i]; });
  const auto real = measure_sparsity(samples, decider, settings);
  for (size_t s = 0; s < samples.size(); ++s) {
    const auto probed =
        sparsity_curve(curves, grid.size(), [&](const SkipCurve& c) { return c.sample == static_cast<int>(s); });
    size_t setting = 0;
    for (const size_t i : {4U, 12U, 20U, 23U}) {
      // Rule sum: probes and runs add the kept mass in a different order, so a block at the edge may go either way.
      EXPECT_NEAR(real[setting++][s], probed[i], decider.rule == SkipRule::max ? 0 : 1e-3) << grid[i];
    }
    EXPECT_GT(probed[23], 0.5);
    EXPECT_TRUE(std::is_sorted(probed.begin(), probed.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Measure,
                         testing::Values(Case{Phase::prefill, SkipRule::max}, Case{Phase::prefill, SkipRule::sum},
                                         Case{Phase::decode, SkipRule::max}, Case{Phase::decode, SkipRule::sum}));

TEST(Measure, MoreThan32LambdasTakeSeveralPasses) {
  std::vector<float> grid;
  for (int i = 1; i <= 70; ++i) grid.push_back(static_cast<float>(i) / 70);
  const std::vector<CalibrationSample> samples{prefill_sample(capture().inputs, 0, 256)};
  int64_t calls = 0, total = 0;
  const auto curves = measure_skip_curves(samples, Decider{}, grid, [&](int64_t done, int64_t all) {
    EXPECT_EQ(done, ++calls);
    total = all;
  });
  EXPECT_EQ(calls, 3 * Capture::kLayers);
  EXPECT_EQ(total, calls);
  for (const SkipCurve& curve : curves) {
    ASSERT_EQ(curve.skipped.size(), grid.size());
    EXPECT_TRUE(std::is_sorted(curve.skipped.begin(), curve.skipped.end()));
    EXPECT_EQ(curve.visible, 256 * 257 / 2);
  }
}

TEST(Measure, TheOracleInTheKernelsGeometryAgreesWithTheKernel) {
  const std::vector<CalibrationSample> samples{prefill_sample(capture().inputs, 0, 1024)};
  Decider oracle{.oracle = true, .order = VisitOrder::newest_first, .geometry = kCpuPrefill};
  const std::vector<float> grid = default_lambda_grid();
  const auto kernel = sparsity_curve(measure_skip_curves(samples, Decider{}, grid), grid.size());
  const auto expected = sparsity_curve(measure_skip_curves(samples, oracle, grid), grid.size());
  for (size_t i = 0; i < grid.size(); ++i) EXPECT_NEAR(kernel[i], expected[i], 1e-3) << grid[i];
}

TEST(Measure, TensorRtLlmIsJudgedByTheOracleInItsOwnOrderAndGeometry) {
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const Decider decider = tensorrt_llm_decider(phase);
    const std::vector<CalibrationSample> samples{phase == Phase::prefill ? prefill_sample(capture().inputs, 0, 1024)
                                                                         : decode_sample(capture().inputs, 1024)};
    const float lambda = 0.3F;
    const auto curves = measure_skip_curves(samples, decider, std::vector<float>{lambda});
    size_t at = 0;
    for (const CalibrationInput& input : samples[0].layers) {
      AttentionArgs args = input.args;
      args.lambda = Lambda::scalar(lambda);
      const ReferenceOptions options{.phase = phase,
                                     .geometry = phase == Phase::prefill ? Geometry{128, 128, 64} : Geometry{64, 64, 0},
                                     .order = VisitOrder::ascending,
                                     .kernel_splits = false};
      const ReferenceResult expected = reference_attention(args, options);
      for (size_t head = 0; head < expected.counters.size() / 4; ++head, ++at) {
        EXPECT_EQ(curves[at].visible, expected.counters[head * 4]);
        EXPECT_EQ(curves[at].skipped[0], expected.counters[head * 4 + 1]);
      }
    }
    EXPECT_EQ(at, curves.size());
  }
}

TEST(Calibrate, ReportsHitsItsTargetsOnHeldOutSamplesAndWritesBothForms) {
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    CalibrationOptions options;
    options.decider.phase = phase;
    options.granularity = Granularity::head;
    const auto samples = samples_of_capture(capture().inputs, phase, "synthetic");
    const CalibrationReport report = calibrate(samples, options);
    const int heads = phase == Phase::prefill ? Capture::kHeadsQ : Capture::kHeadsKv;
    ASSERT_EQ(report.table.size(), static_cast<size_t>(1 + Capture::kLayers + Capture::kLayers * heads));
    EXPECT_EQ(report.table[1].layer, 0);
    EXPECT_EQ(report.table[2].layer, 10);
    EXPECT_EQ(report.overrides.size(), static_cast<size_t>(Capture::kLayers * heads));
    EXPECT_TRUE(report.law.exponent_fitted);
    ASSERT_FALSE(report.held_out.empty());
    double worst = 0;
    for (const HeldOutRow& row : report.held_out) worst = std::max(worst, std::abs(row.achieved - row.target));
    EXPECT_LT(worst, 0.15) << "the levels are uniform, which the logistic law can only approach";
    ASSERT_FALSE(report.held_out_scale_factor.empty());

    const Interval fitted = report.law.quality.sparsity;
    const double target = (fitted.low + fitted.high) / 2;
    LonghaulConfig config;
    config.phases[phase] = phase_config(report, target);
    const LonghaulConfig again = parse_longhaul_yaml(to_longhaul_yaml(config), "again");
    EXPECT_EQ(again, config);
    again.check_calibrated_for(phase, SkipRule::max, VisitOrder::newest_first,
                               phase == Phase::prefill ? kCpuPrefill : kCpuDecode);
    EXPECT_GT(again.lambda_for(phase, 10, 1, 512), 0);
    EXPECT_THROW(phase_config(report, 0.99), InvalidArgument);
  }
}

TEST(Calibrate, TensorRtLlmsFormsCarryTheOraclesFactor) {
  CalibrationOptions options;
  options.decider = tensorrt_llm_decider(Phase::prefill);
  const CalibrationReport report =
      calibrate(samples_of_capture(capture().inputs, Phase::prefill, "synthetic"), options);
  const double target = (report.scale_factor.quality.sparsity.low + report.scale_factor.quality.sparsity.high) / 2;
  SkipSoftmaxConfig yaml, checkpoint;
  add_scale_factor(report, target, yaml);
  add_formula(report, target, checkpoint);
  const SkipSoftmaxConfig read = parse_trtllm_yaml(to_trtllm_yaml(yaml), "yaml");
  const SkipSoftmaxConfig read_checkpoint = parse_checkpoint_json(to_checkpoint_json(checkpoint), "json");
  EXPECT_FALSE(read.threshold_scale_factor.decode);
  EXPECT_NEAR(*read.threshold_scale_factor.prefill,
              threshold_scale_factor(Phase::prefill, read_checkpoint, nullptr)->value,
              1e-9 * *read.threshold_scale_factor.prefill);
  EXPECT_THROW(add_scale_factor(report, 0.999, yaml), InvalidArgument);
}

// Heads that see every second block of keys 100 below the others: half of the scores go whatever lambda is.
class CaptureWithFlatHeads : public Capture {
 public:
  CaptureWithFlatHeads(int layer, std::initializer_list<int> heads) : Capture(1024) {
    const AttentionArgs& args = inputs[layer].args;
    auto* q = static_cast<float*>(args.query.data);
    auto* k = static_cast<float*>(args.key.data);
    for (int64_t row = 0; row < 1024 * kHeadsQ; ++row) q[row * kD + 1] = 0;
    for (int64_t row = 0; row < 1024 * kHeadsKv; ++row) k[row * kD + 1] = row / kHeadsKv / 16 % 2 == 0 ? 0 : -100;
    for (int64_t token = 0; token < 1024; ++token)
      for (const int head : heads) {
        float* query = q + (token * kHeadsQ + head) * kD;
        std::fill(query, query + kD, 0.0F);
        query[1] = 8;
      }
  }
};

TEST(Calibrate, APartWhoseSparsityDoesNotRiseFollowsTheModelAndANoteSaysSo) {
  const std::string reason =
      " follows the law of the model, because sparsity does not rise with lambda in the measured points (slope 0), so "
      "no law fits them";
  CalibrationOptions options;
  {
    const CaptureWithFlatHeads one_head(0, {1});
    options.granularity = Granularity::head;
    const std::vector samples{prefill_sample(one_head.inputs, 0, 1024)};
    const CalibrationReport report = calibrate(samples, options);
    EXPECT_EQ(report.overrides.size(), static_cast<size_t>(Capture::kLayers * Capture::kHeadsQ - 1));
    for (const LawOverride& override : report.overrides) EXPECT_FALSE(override.layer == 0 && override.head == 1);
    EXPECT_EQ(report.notes[0], "head 1 of layer 0" + reason);
    const double target = (report.law.quality.sparsity.low + report.law.quality.sparsity.high) / 2;
    const PhaseConfig config = phase_config(report, target);
    EXPECT_EQ(config.overrides.size(), report.overrides.size());
  }
  {
    const CaptureWithFlatHeads one_layer(1, {0, 1, 2, 3});
    options.granularity = Granularity::layer;
    const auto samples = samples_of_capture(one_layer.inputs, Phase::prefill, "flat");  // of several lengths
    const CalibrationReport report = calibrate(samples, options);
    ASSERT_EQ(report.overrides.size(), 1U);
    EXPECT_EQ(report.overrides[0].layer, 0);
    EXPECT_EQ(report.notes[0], "layer 10" + reason);
    // A model that is nothing else has no law to follow.
    const auto flat = samples_of_capture(std::span(one_layer.inputs).subspan(1), Phase::prefill, "flat");
    EXPECT_THROW(calibrate(flat, options), InvalidArgument);
  }
}

TEST(Calibrate, MistakesAreRefused) {
  CalibrationOptions options;
  EXPECT_THROW(calibrate({}, options), InvalidArgument);
  std::vector<CalibrationSample> samples{prefill_sample(capture().inputs, 0, 256)};
  samples[0].held_out = true;
  EXPECT_THROW(calibrate(samples, options), InvalidArgument);
  samples[0].held_out = false;
  options.targets = {1.0};
  EXPECT_THROW(calibrate(samples, options), InvalidArgument);
  options.targets = {0.5};
  options.lambdas = {0.5F, 0.5F};
  EXPECT_THROW(calibrate(samples, options), InvalidArgument);
  options.lambdas = {};
  EXPECT_THROW(calibrate(samples, options), InvalidArgument);
  options.lambdas = default_lambda_grid();
  samples[0].layers.clear();
  EXPECT_THROW(calibrate(samples, options), InvalidArgument);
}

}  // namespace
}  // namespace longhaul
