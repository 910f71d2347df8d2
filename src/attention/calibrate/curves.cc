// Reading what was measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/calibrate.h"
#include "longhaul/error.h"

namespace longhaul {

std::vector<float> default_lambda_grid() {
  constexpr int kPoints = 24;
  const double low = std::log(1e-6), high = std::log(0.99);
  std::vector<float> grid;
  for (int i = 0; i < kPoints; ++i)
    grid.push_back(static_cast<float>(std::exp(low + (high - low) * i / (kPoints - 1))));
  return grid;
}

std::vector<double> sparsity_curve(std::span<const SkipCurve> curves, size_t lambdas,
                                   const std::function<bool(const SkipCurve&)>& keep) {
  int64_t visible = 0;
  std::vector<int64_t> skipped(lambdas, 0);
  for (const SkipCurve& curve : curves) {
    if (keep && !keep(curve)) continue;
    if (curve.skipped.size() != lambdas)
      throw InvalidArgument(
          fmt::format("lambdas is {}, but a curve has {} of them; allowed is the number that was measured", lambdas,
                      curve.skipped.size()));
    visible += curve.visible;
    for (size_t i = 0; i < lambdas; ++i) skipped[i] += curve.skipped[i];
  }
  std::vector<double> sparsity;
  for (const int64_t scores : skipped) {
    sparsity.push_back(visible == 0 ? 0.0 : static_cast<double>(scores) / static_cast<double>(visible));
  }
  return sparsity;
}

std::optional<double> lambda_at_sparsity(std::span<const float> lambdas, std::span<const double> sparsity,
                                         double target) {
  if (lambdas.size() != sparsity.size())
    throw InvalidArgument(fmt::format("sparsity has {} values, but it must have one for each of the {} lambdas",
                                      sparsity.size(), lambdas.size()));
  for (size_t i = 0; i < lambdas.size(); ++i) {
    if (sparsity[i] < target) continue;
    if (i == 0) return sparsity[0] == target ? std::optional<double>(lambdas[0]) : std::nullopt;
    const double share = (target - sparsity[i - 1]) / (sparsity[i] - sparsity[i - 1]);
    const double low = std::log(static_cast<double>(lambdas[i - 1])), high = std::log(static_cast<double>(lambdas[i]));
    return std::exp(low + share * (high - low));
  }
  return std::nullopt;
}

}  // namespace longhaul
