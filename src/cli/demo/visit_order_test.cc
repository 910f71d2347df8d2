// On real activations, newest first skips more than the published ascending order at the same output error.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention/reference/reference.h"
#include "io/safetensors.h"

namespace longhaul {
namespace {

constexpr int64_t kQueries = 128;  // the last ones: a chunk on a long cache, seconds instead of minutes for the oracle

struct Layer {
  TensorView query, key, value;
};

// Query rows are the last kQueries of the capture.
Layer layer_of(const SafetensorsFile& file, const std::string& name) {
  Layer layer{file.get(name + ".query"), file.get(name + ".key"), file.get(name + ".value")};
  const int64_t first = layer.query.shape[0] - kQueries;
  layer.query.data = static_cast<uint16_t*>(layer.query.data) + first * layer.query.stride[0];
  layer.query.shape[0] = kQueries;
  return layer;
}

struct Point {
  double sparsity, error;
};

class VisitOrderTest : public ::testing::TestWithParam<const char*> {};

std::vector<Point> curve(const Layer& layer, VisitOrder order, const Geometry& geometry) {
  const int32_t starts_q[] = {0, static_cast<int32_t>(kQueries)};
  const int32_t starts_kv[] = {0, static_cast<int32_t>(layer.key.shape[0])};
  AttentionArgs args;
  args.query = layer.query;
  args.key = layer.key;
  args.value = layer.value;
  args.cu_seqlens_q = TensorView::of(starts_q, DType::i32, {2});
  args.cu_seqlens_kv = TensorView::of(starts_kv, DType::i32, {2});
  ReferenceOptions options;
  options.geometry = geometry;
  options.order = order;
  const ReferenceResult dense = reference_attention(args, options);
  std::vector<Point> points;
  for (const float lambda : {0.0001F, 0.001F, 0.01F, 0.1F, 0.5F}) {
    args.lambda = Lambda::scalar(lambda);
    const ReferenceResult result = reference_attention(args, options);
    double visible = 0, skipped = 0, difference = 0, size = 0;
    for (size_t head = 0; head < result.counters.size() / 4; ++head) {
      visible += static_cast<double>(result.counters[4 * head]);
      skipped += static_cast<double>(result.counters[4 * head + 1]);
    }
    for (size_t i = 0; i < result.output.size(); ++i) {
      difference += std::pow(result.output[i] - dense.output[i], 2);
      size += dense.output[i] * dense.output[i];
    }
    points.push_back({skipped / visible, std::sqrt(difference / size)});
  }
  return points;
}

// Interpolated in the logarithm of the error; the curve must enclose it.
double sparsity_at(const std::vector<Point>& points, double error) {
  for (size_t i = 1; i < points.size(); ++i) {
    if (points[i - 1].error <= error && error <= points[i].error && points[i - 1].error > 0) {
      const double share = std::log(error / points[i - 1].error) / std::log(points[i].error / points[i - 1].error);
      return points[i - 1].sparsity + share * (points[i].sparsity - points[i - 1].sparsity);
    }
  }
  ADD_FAILURE() << "no pair of thresholds encloses the error " << error;
  return NAN;
}

TEST_P(VisitOrderTest, NewestFirstSkipsMoreAtEqualError) {
  const SafetensorsFile file(LONGHAUL_ACTIVATIONS);
  const Layer layer = layer_of(file, GetParam());
  const Geometry published{.tile_keys = 128, .block_keys = 128, .group_rows = 64}, ours{64, 16, 16};
  const auto ascending = curve(layer, VisitOrder::ascending, published);
  const auto newest = curve(layer, VisitOrder::newest_first, published);
  const auto finest = curve(layer, VisitOrder::newest_first, ours);
  for (const double error : {0.01, 0.03}) {
    const double s[] = {sparsity_at(ascending, error), sparsity_at(newest, error), sparsity_at(finest, error)};
    std::printf(
        "%s, error %.2f: sparsity %.3f ascending 64 x 128, %.3f newest first 64 x 128, %.3f newest first 16 x 16\n",
        GetParam(), error, s[0], s[1], s[2]);
    EXPECT_GT(s[1], s[0]) << "error " << error;
    EXPECT_GT(s[2], s[1]) << "error " << error;
  }
}

INSTANTIATE_TEST_SUITE_P(ShippedActivations, VisitOrderTest, ::testing::Values("layer.4", "layer.21"),
                         [](const auto& layer) { return std::string(layer.param).substr(6); });

}  // namespace
}  // namespace longhaul
