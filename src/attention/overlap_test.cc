#include "attention/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace longhaul {
namespace {

// Every byte that the view's elements hold, counted from `base`.
std::vector<int64_t> bytes_of(const TensorView& view, const char* base) {
  std::vector<int64_t> bytes;
  std::vector<int64_t> index(view.rank, 0);
  const auto element = static_cast<int64_t>(dtype_size(view.dtype));
  for (int64_t n = 0; n < view.size(); ++n) {
    int64_t offset = static_cast<const char*>(view.data) - base, rest = n;
    for (int i = view.rank - 1; i >= 0; --i) {
      offset += rest % view.shape[i] * view.stride[i] * element;
      rest /= view.shape[i];
    }
    for (int64_t b = 0; b < element; ++b) bytes.push_back(offset + b);
  }
  std::sort(bytes.begin(), bytes.end());
  return bytes;
}

bool share_a_byte(const TensorView& a, const TensorView& b, const char* base) {
  const std::vector<int64_t> left = bytes_of(a, base), right = bytes_of(b, base);
  std::vector<int64_t> both;
  std::set_intersection(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
  return !both.empty();
}

class Views {
 public:
  explicit Views(uint32_t seed) : random_(seed) {}
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  // Strides in a random order of the dimensions, with gaps; `alias`: some are 0 or step too short.
  TensorView draw(int rank, bool alias) {
    TensorView view;
    view.dtype = pick(0, 1) == 0 ? DType::u8 : DType::f16;
    view.rank = rank;
    std::vector<int> order(rank);
    for (int i = 0; i < rank; ++i) order[i] = i;
    if (pick(0, 2) == 0) {
      std::shuffle(order.begin(), order.end(), random_);
    } else {
      std::reverse(order.begin(), order.end());
      if (rank > 2 && pick(0, 1) == 0) std::swap(order[1], order[2]);
    }
    int64_t span = 1;
    for (const int dim : order) {
      view.shape[dim] = pick(pick(0, 9) == 0 ? 0 : 1, 4);
      view.stride[dim] = span * (pick(0, 1) == 0 ? 1 : pick(1, 3));
      if (alias && pick(0, 3) == 0) view.stride[dim] = pick(0, span);
      span = std::max<int64_t>(1, span + (view.shape[dim] - 1) * view.stride[dim]);
    }
    view.data = memory.data() + 2 * pick(0, 150);
    return view;
  }

  std::vector<char> memory = std::vector<char>(1 << 16);

 private:
  std::mt19937 random_;
};

TEST(Overlap, AgreesWithCountingBytes) {
  Views views(5);
  int shared = 0, apart_within = 0;
  for (int i = 0; i < 20000; ++i) {
    const TensorView result = views.draw(static_cast<int>(views.pick(1, 3)), false);
    const TensorView input = views.draw(static_cast<int>(views.pick(1, 4)), true);
    const bool expected = share_a_byte(result, input, views.memory.data());
    ASSERT_EQ(overlap(result, input), expected) << "case " << i << ": " << result.describe() << " at " << result.data
                                                << ", " << input.describe() << " at " << input.data;
    shared += expected ? 1 : 0;
    const auto spans_meet = [&](const TensorView& a, const TensorView& b) {
      const auto x = bytes_of(a, views.memory.data()), y = bytes_of(b, views.memory.data());
      return !x.empty() && !y.empty() && x.front() <= y.back() && y.front() <= x.back();
    };
    apart_within += !expected && spans_meet(result, input) ? 1 : 0;
  }
  EXPECT_GT(shared, 2000);
  EXPECT_GT(apart_within, 200) << "views that interleave without sharing";
}

TEST(Overlap, AFusedBufferHoldsQueryKeyValueAndOutput) {
  std::vector<float> fused(int64_t{50} * (4 + 2 + 2 + 4) * 64);
  const auto part = [&](int64_t first, int64_t heads) {
    return TensorView(fused.data() + first * 64, DType::f32, {50, heads, 64}, {12 * 64, 64, 1});
  };
  const TensorView output = part(8, 4);
  EXPECT_FALSE(overlap(output, part(0, 4)));
  EXPECT_FALSE(overlap(output, part(4, 2)));
  EXPECT_FALSE(overlap(output, part(6, 2)));
  EXPECT_TRUE(overlap(output, part(7, 2))) << "the second head is the output's first";
  EXPECT_TRUE(overlap(output, output));
}

}  // namespace
}  // namespace longhaul
