#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "longhaul/calibrate.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Points on lambda = exp(alpha + beta * logit(s)) * L^-gamma.
std::vector<FitPoint> law_points(double alpha, double beta, double gamma, std::initializer_list<double> lengths,
                                 double noise = 0) {
  std::vector<FitPoint> points;
  int i = 0;
  for (const double length : lengths) {
    for (const float lambda : default_lambda_grid()) {
      const double wobble = noise * ((i++ % 7) - 3) / 3.0;
      points.push_back(
          {lambda, length, sigmoid((std::log(lambda) + gamma * std::log(length) - alpha + wobble) / beta)});
    }
  }
  return points;
}

TEST(Grid, TwentyFourAscendingValues) {
  const std::vector<float> grid = default_lambda_grid();
  ASSERT_EQ(grid.size(), 24U);
  EXPECT_FLOAT_EQ(grid.front(), 1e-6F);
  EXPECT_FLOAT_EQ(grid.back(), 0.99F);
  for (size_t i = 2; i < grid.size(); ++i) EXPECT_NEAR(grid[i] / grid[i - 1], grid[1] / grid[0], 1e-4);
}

TEST(FitScaleFactor, ThePublishedTableGivesItsFormula) {
  // TensorRT-LLM's factors for Qwen3-30B-A3B at targets 0.1 to 0.9: a = 7.93, b = 8.61 in prefill and 0.119, 9.86 in
  // decode.
  const double prefill[] = {18.76, 44.37, 104.97, 248.40, 587.18, 1390.63, 3293.04, 7799.91, 18471.56};
  const double decode[] = {0.32, 0.86, 2.30, 6.17, 16.52, 44.26, 118.62, 317.99, 852.20};
  const auto fit = [](const double* factors) {
    std::vector<FitPoint> points;
    for (int i = 0; i < 9; ++i) points.push_back({factors[i] / 131072, 131072, 0.1 * (i + 1)});
    points.front().sparsity = 0.1;  // 0.1 * 1 and 0.1 * 9 round outside the range
    points.back().sparsity = 0.9;
    return fit_scale_factor(points);
  };
  EXPECT_NEAR(fit(prefill).a, 7.93, 0.02);  // 7.93 itself is a rounded fit
  EXPECT_NEAR(fit(prefill).b, 8.61, 0.01);
  EXPECT_NEAR(fit(decode).a, 0.119, 0.001);
  EXPECT_NEAR(fit(decode).b, 9.86, 0.01);
  EXPECT_EQ(fit(prefill).quality.points, 9);
}

TEST(FitScaleFactor, RecoversKnownParametersOverSeveralLengths) {
  std::vector<FitPoint> points;
  for (const double length : {2048.0, 8192.0}) {
    for (const float lambda : default_lambda_grid())
      points.push_back({lambda, length, std::log(lambda * length / 3.5) / 9.25});
  }
  const ScaleFactorFit fit = fit_scale_factor(points);
  EXPECT_NEAR(fit.a, 3.5, 1e-9);
  EXPECT_NEAR(fit.b, 9.25, 1e-9);
  EXPECT_LT(fit.quality.residual, 1e-9);
  EXPECT_GE(fit.quality.sparsity.low, 0.1);
  EXPECT_LE(fit.quality.sparsity.high, 0.9);
  EXPECT_EQ(fit.quality.context_length, (Interval{2048, 8192}));
}

TEST(FitLambdaLaw, RecoversAllThreeParameters) {
  const LambdaLawFit fit = fit_lambda_law(law_points(0.75, 2.5, 0.4, {2048, 4096, 8192}));
  EXPECT_TRUE(fit.exponent_fitted);
  EXPECT_NEAR(fit.law.alpha, 0.75, 1e-6);
  EXPECT_NEAR(fit.law.beta, 2.5, 1e-6);
  EXPECT_NEAR(fit.law.exponent, 0.4, 1e-6);
  EXPECT_LT(fit.quality.residual, 1e-6);
}

TEST(FitLambdaLaw, NoiseMovesTheParametersLittle) {
  const LambdaLawFit fit = fit_lambda_law(law_points(0.75, 2.5, 0.4, {1024, 2048, 4096, 8192}, 0.2));
  EXPECT_NEAR(fit.law.beta, 2.5, 0.1);
  EXPECT_NEAR(fit.law.exponent, 0.4, 0.1);
  EXPECT_GT(fit.quality.residual, 0.02);
}

TEST(FitLambdaLaw, OneLengthKeepsTheCompatibleExponent) {
  const LambdaLawFit fit = fit_lambda_law(law_points(2, 2.5, 1, {8192}));
  EXPECT_FALSE(fit.exponent_fitted);
  EXPECT_EQ(fit.law.exponent, 1);
  EXPECT_NEAR(fit.law.alpha, 2, 1e-6);
  EXPECT_FALSE(fit_lambda_law(law_points(2, 2.5, 1, {8192, 8700})).exponent_fitted);
}

TEST(FitLambdaLaw, AGivenExponentIsKept) {
  const auto points = law_points(0.75, 2.5, 0.4, {2048, 8192});
  const LambdaLawFit fit = fit_lambda_law(points, 0.4);
  EXPECT_FALSE(fit.exponent_fitted);
  EXPECT_EQ(fit.law.exponent, 0.4);
  EXPECT_NEAR(fit.law.alpha, 0.75, 1e-6);
  EXPECT_EQ(fit_lambda_law(points, 1).law.exponent, 1);
  EXPECT_THROW(fit_lambda_law(points, -0.1), InvalidArgument);
  EXPECT_THROW(fit_lambda_law(points, NAN), InvalidArgument);
}

TEST(FitLambdaLaw, AnExponentBelowZeroIsCutToZero) {
  const LambdaLawFit fit = fit_lambda_law(law_points(-3, 2.5, -0.3, {2048, 8192}));
  EXPECT_EQ(fit.law.exponent, 0);
  EXPECT_NEAR(fit.law.beta, 2.5, 0.2);
}

TEST(FitLambdaLaw, LambdaStaysWithinOneWhateverTheTargetAndLength) {
  const LambdaLaw law = fit_lambda_law(law_points(2, 2.5, 1, {8192})).law;
  for (const double length : {1.0, 16.0, 512.0, 1e6}) {
    double previous = 0;
    for (const double target : {0.001, 0.1, 0.5, 0.9, 0.999}) {
      const double lambda = law.lambda(target, length);
      EXPECT_GT(lambda, 0);
      EXPECT_LE(lambda, 1);
      EXPECT_GE(lambda, previous) << "more sparsity never needs a smaller lambda";
      previous = lambda;
    }
  }
}

TEST(Fits, RefuseWhatNoLawFits) {
  const std::vector<FitPoint> flat{{0.1, 100, 0.5}, {0.2, 100, 0.5}, {0.3, 100, 0.5}};
  const std::vector<FitPoint> falling{{0.1, 100, 0.7}, {0.2, 100, 0.5}, {0.3, 100, 0.3}};
  const std::vector<FitPoint> outside{{0.1, 100, 0.05}, {0.2, 100, 0.5}, {0.3, 100, 0.95}, {0.4, 100, 0.5}};
  const std::vector<FitPoint> wrong{{0.1, 100, 0.2}, {2, 100, 0.5}, {0.3, 100, 0.6}};
  for (const auto& points : {flat, falling, outside, wrong, std::vector<FitPoint>{}}) {
    EXPECT_THROW(fit_lambda_law(points), InvalidArgument);
    EXPECT_THROW(fit_scale_factor(points), InvalidArgument);
  }
}

TEST(Fits, RefuseASparsityThatLambdaDoesNotMove) {
  // The same at every lambda, at one length or another at each; or falling with lambda at each length.
  std::vector<std::vector<FitPoint>> sets;
  for (const double sparsity : {0.1, 0.3, 0.47, 0.6125, 0.9}) {
    std::vector<FitPoint> one, three, falling;
    for (const float lambda : default_lambda_grid()) {
      one.push_back({lambda, 1024, sparsity});
      for (const double length : {512, 1024, 2048}) {
        three.push_back({lambda, length, std::clamp(sparsity + 0.1 * std::log2(length / 1024), 0.1, 0.9)});
        falling.push_back({lambda, length, 0.3 - 0.01 * std::log(lambda) + 0.1 * std::log2(length / 1024)});
      }
    }
    sets.insert(sets.end(), {one, three, falling});
  }
  for (const auto& points : sets)
    for (const auto& fit :
         {std::function([&] { fit_scale_factor(points); }), std::function([&] { fit_lambda_law(points); }),
          std::function([&] { fit_lambda_law(points, 1); })}) {
      try {
        fit();
        ADD_FAILURE() << "accepted " << points[0].sparsity << " over " << points.size() << " points";
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("sparsity does not rise with lambda"), std::string::npos)
            << error.what();
      }
    }
}

TEST(LambdaAtSparsity, InterpolatesInTheLogarithm) {
  const float lambdas[] = {0.001F, 0.01F, 0.1F};
  const double sparsity[] = {0.2, 0.4, 0.8};
  EXPECT_NEAR(*lambda_at_sparsity(lambdas, sparsity, 0.6), std::sqrt(0.001), 1e-8);
  EXPECT_NEAR(*lambda_at_sparsity(lambdas, sparsity, 0.4), 0.01, 1e-8);
  EXPECT_NEAR(*lambda_at_sparsity(lambdas, sparsity, 0.2), 0.001, 1e-9);
  EXPECT_FALSE(lambda_at_sparsity(lambdas, sparsity, 0.1)) << "below the grid";
  EXPECT_FALSE(lambda_at_sparsity(lambdas, sparsity, 0.9)) << "above the grid";
  EXPECT_THROW(lambda_at_sparsity(std::span(lambdas).first(2), sparsity, 0.5), InvalidArgument);
}

TEST(SparsityCurve, AddsScoresNotShares) {
  const std::vector<SkipCurve> curves{{0, 0, 0, 100, {10, 50}}, {0, 0, 1, 300, {0, 300}}, {0, 1, 0, 50, {50, 50}}};
  EXPECT_EQ(sparsity_curve(curves, 2, [](const SkipCurve& c) { return c.layer == 0; }),
            (std::vector<double>{10 / 400.0, 350 / 400.0}));
  EXPECT_EQ(sparsity_curve(curves, 2), (std::vector<double>{60 / 450.0, 400 / 450.0}));
  EXPECT_EQ(sparsity_curve({}, 2), (std::vector<double>{0, 0}));
  EXPECT_THROW(sparsity_curve(curves, 3), InvalidArgument);
}

}  // namespace
}  // namespace longhaul
