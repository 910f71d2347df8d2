// The laws: closed-form least squares in ln(lambda).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "longhaul/calibrate.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr int kMinPoints = 3;
constexpr double kSameLength = 1.2;  // decode samples spread over 1/16 of their length

// Whether n values with this sum of squared distances from their mean differ by rounding alone: a slope over them would
// be noise of any size and sign.
bool same_value(double squares, double n) { return squares <= 1e-12 * n; }

std::vector<FitPoint> usable_points(std::span<const FitPoint> points) {
  std::vector<FitPoint> usable;
  for (const FitPoint& point : points) {
    if (!(point.lambda > 0) || !(point.lambda <= 1) || !(point.context_length >= 1)) {
      throw InvalidArgument(fmt::format("a point has lambda {} and context length {}; allowed are (0, 1] and >= 1",
                                        point.lambda, point.context_length));
    }
    if (kFittedSparsity.contains(point.sparsity)) usable.push_back(point);
  }
  if (usable.size() < kMinPoints) {
    throw InvalidArgument(
        fmt::format("only {} of {} measured points have a sparsity from {} to {}, but a fit needs {}; give "
                    "longer samples or a finer grid of lambdas",
                    usable.size(), points.size(), kFittedSparsity.low, kFittedSparsity.high, kMinPoints));
  }
  return usable;
}

FitQuality quality_of(const std::vector<FitPoint>& points, const std::function<double(const FitPoint&)>& log_lambda) {
  FitQuality quality;
  quality.points = static_cast<int>(points.size());
  const auto [low, high] = std::minmax_element(
      points.begin(), points.end(), [](const FitPoint& x, const FitPoint& y) { return x.sparsity < y.sparsity; });
  quality.sparsity = {low->sparsity, high->sparsity};
  const auto [shortest, longest] =
      std::minmax_element(points.begin(), points.end(),
                          [](const FitPoint& x, const FitPoint& y) { return x.context_length < y.context_length; });
  quality.context_length = {shortest->context_length, longest->context_length};
  double sum = 0;
  for (const FitPoint& point : points) {
    const double error = std::log(point.lambda) - log_lambda(point);
    sum += error * error;
  }
  quality.residual = std::sqrt(sum / static_cast<double>(points.size()));
  return quality;
}

struct Line {
  double intercept, slope;
};

// y = intercept + slope * x; slope 0 where all x are the same
Line least_squares(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / n;
    mean_y += y[i] / n;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  const double slope = same_value(xx, n) ? 0 : xy / xx;
  return {mean_y - slope * mean_x, slope};
}

struct Plane {
  double intercept, slope_u, slope_v;
};

// y = intercept + slope_u * u + slope_v * v; nullopt where u and v move together or one does not move.
std::optional<Plane> least_squares(const std::vector<double>& u, const std::vector<double>& v,
                                   const std::vector<double>& y) {
  const auto n = static_cast<double>(u.size());
  double mean_u = 0, mean_v = 0, mean_y = 0, uu = 0, vv = 0, uv = 0, uy = 0, vy = 0;
  for (size_t i = 0; i < u.size(); ++i) {
    mean_u += u[i] / n;
    mean_v += v[i] / n;
    mean_y += y[i] / n;
  }
  for (size_t i = 0; i < u.size(); ++i) {
    const double du = u[i] - mean_u, dv = v[i] - mean_v, dy = y[i] - mean_y;
    uu += du * du;
    vv += dv * dv;
    uv += du * dv;
    uy += du * dy;
    vy += dv * dy;
  }
  const double determinant = uu * vv - uv * uv;
  if (same_value(uu, n) || same_value(vv, n) || !(determinant > 1e-9 * uu * vv)) return std::nullopt;
  const double slope_u = (uy * vv - vy * uv) / determinant, slope_v = (vy * uu - uy * uv) / determinant;
  return Plane{mean_y - slope_u * mean_u - slope_v * mean_v, slope_u, slope_v};
}

void check_rises(double slope) {
  if (slope > 0) return;
  throw InvalidArgument(
      fmt::format("sparsity does not rise with lambda in the measured points (slope {}), so no law fits them", slope));
}

double logit(double s) { return std::log(s / (1 - s)); }

// Also at one length: a sparsity that only the length moves, as of a head that drops the same share whatever lambda is,
// would give a fit over several lengths some slope.
void check_rises_at_one_length(const std::vector<FitPoint>& points) {
  std::map<double, std::vector<FitPoint>> by_length;
  for (const FitPoint& point : points) by_length[point.context_length].push_back(point);
  double xx = 0, xy = 0, freedom = 0;
  for (const auto& [length, group] : by_length) {
    const auto n = static_cast<double>(group.size());
    double mean_x = 0, mean_y = 0;
    for (const FitPoint& point : group) {
      mean_x += logit(point.sparsity) / n;
      mean_y += std::log(point.lambda) / n;
    }
    for (const FitPoint& point : group) {
      const double x = logit(point.sparsity) - mean_x;
      xx += x * x;
      xy += x * (std::log(point.lambda) - mean_y);
    }
    freedom += n - 1;
  }
  if (freedom > 0) check_rises(same_value(xx, freedom) ? 0 : xy / xx);
}

LambdaLaw fit_with_exponent(const std::vector<FitPoint>& points, double exponent) {
  std::vector<double> x, y;
  for (const FitPoint& point : points) {
    x.push_back(logit(point.sparsity));
    y.push_back(std::log(point.lambda) + exponent * std::log(point.context_length));
  }
  const Line line = least_squares(x, y);
  check_rises(line.slope);
  return {.coefficient = {}, .alpha = line.intercept, .beta = line.slope, .exponent = exponent};
}

std::optional<LambdaLaw> fit_free_exponent(const std::vector<FitPoint>& points) {
  std::vector<double> u, v, y;
  for (const FitPoint& point : points) {
    u.push_back(logit(point.sparsity));
    v.push_back(-std::log(point.context_length));
    y.push_back(std::log(point.lambda));
  }
  const std::optional<Plane> plane = least_squares(u, v, y);
  if (!plane) return std::nullopt;
  if (plane->slope_v < 0) return fit_with_exponent(points, 0);
  check_rises(plane->slope_u);
  return LambdaLaw{.coefficient = {}, .alpha = plane->intercept, .beta = plane->slope_u, .exponent = plane->slope_v};
}

}  // namespace

ScaleFactorFit fit_scale_factor(std::span<const FitPoint> points) {
  const std::vector<FitPoint> usable = usable_points(points);
  check_rises_at_one_length(usable);
  std::vector<double> x, y;
  for (const FitPoint& point : usable) {
    x.push_back(point.sparsity);
    y.push_back(std::log(point.lambda * point.context_length));
  }
  const Line line = least_squares(x, y);
  check_rises(line.slope);
  ScaleFactorFit fit{.a = std::exp(line.intercept), .b = line.slope, .quality = {}};
  fit.quality = quality_of(usable, [&](const FitPoint& point) {
    return line.intercept + line.slope * point.sparsity - std::log(point.context_length);
  });
  return fit;
}

LambdaLawFit fit_lambda_law(std::span<const FitPoint> points, std::optional<double> exponent) {
  if (exponent && !(*exponent >= 0 && std::isfinite(*exponent))) {
    throw InvalidArgument(fmt::format("exponent is {}; allowed are finite numbers >= 0", *exponent));
  }
  const std::vector<FitPoint> usable = usable_points(points);
  check_rises_at_one_length(usable);
  LambdaLawFit fit;
  const auto [shortest, longest] =
      std::minmax_element(usable.begin(), usable.end(),
                          [](const FitPoint& x, const FitPoint& y) { return x.context_length < y.context_length; });
  if (!exponent && longest->context_length > kSameLength * shortest->context_length) {
    if (const std::optional<LambdaLaw> law = fit_free_exponent(usable)) {
      fit.law = *law;
      fit.exponent_fitted = true;
    }
  }
  if (!fit.exponent_fitted) fit.law = fit_with_exponent(usable, exponent.value_or(1));
  fit.quality = quality_of(usable, [&](const FitPoint& point) {
    return fit.law.alpha + fit.law.beta * logit(point.sparsity) - fit.law.exponent * std::log(point.context_length);
  });
  return fit;
}

}  // namespace longhaul
