#include "attention/testing/covering.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "attention/testing/random.h"

namespace longhaul::conformance {
namespace {

// Of several random attempts at a row the one that covers most is taken; more attempts give few fewer rows.
constexpr int kAttempts = 40;

class Pairs {
 public:
  explicit Pairs(const std::vector<int>& levels) : levels_(levels), first_(levels.size() + 1, 0) {
    for (size_t f = 0; f < levels.size(); ++f) first_[f + 1] = first_[f] + levels[f];
    const size_t values = first_.back();
    open_.assign(values * values, 0);
    for (size_t f = 0; f < levels.size(); ++f)
      for (size_t g = 0; g < levels.size(); ++g)
        if (f != g)
          for (int a = 0; a < levels[f]; ++a)
            for (int b = 0; b < levels[g]; ++b) at(f, a, g, b) = 1, ++count_;
    count_ /= 2;
  }
  bool open(size_t f, int a, size_t g, int b) const { return open_[index(f, a, g, b)] != 0; }
  int count() const { return count_; }

  int gain(const std::vector<int>& row, size_t f, int value) const {
    int pairs = 0;
    for (size_t g = 0; g < row.size(); ++g)
      if (g != f && row[g] >= 0 && open(f, value, g, row[g])) ++pairs;
    return pairs;
  }
  void close(const std::vector<int>& row) {
    for (size_t f = 0; f < row.size(); ++f)
      for (size_t g = f + 1; g < row.size(); ++g)
        if (open(f, row[f], g, row[g])) at(f, row[f], g, row[g]) = at(g, row[g], f, row[f]) = 0, --count_;
  }
  // Some pair that is still open.
  void seed_row(Random& random, std::vector<int>& row) const {
    std::vector<size_t> open_pairs;
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i] != 0) open_pairs.push_back(i);
    const size_t pair = open_pairs[random.integer(0, static_cast<int64_t>(open_pairs.size()) - 1)];
    set(pair / first_.back(), row);
    set(pair % first_.back(), row);
  }

 private:
  size_t index(size_t f, int a, size_t g, int b) const { return (first_[f] + a) * first_.back() + first_[g] + b; }
  char& at(size_t f, int a, size_t g, int b) { return open_[index(f, a, g, b)]; }
  void set(size_t value, std::vector<int>& row) const {
    const size_t f = std::upper_bound(first_.begin(), first_.end(), value) - first_.begin() - 1;
    row[f] = static_cast<int>(value - first_[f]);
  }

  const std::vector<int>& levels_;
  std::vector<size_t> first_;  // of each factor's values
  std::vector<char> open_;
  int count_ = 0;
};

std::vector<int> make_row(const std::vector<int>& levels, const Pairs& pairs, Random& random) {
  std::vector<int> row(levels.size(), -1);
  pairs.seed_row(random, row);
  std::vector<size_t> order(levels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random.integer(0, static_cast<int64_t>(i) - 1)]);
  for (size_t f : order) {
    if (row[f] >= 0) continue;
    int best = -1, best_gain = -1;
    const int start = static_cast<int>(random.integer(0, levels[f] - 1));
    for (int i = 0; i < levels[f]; ++i) {
      const int value = (start + i) % levels[f], gain = pairs.gain(row, f, value);
      if (gain > best_gain) best = value, best_gain = gain;
    }
    row[f] = best;
  }
  return row;
}

}  // namespace

std::vector<std::vector<int>> covering_array(const std::vector<int>& levels, uint64_t seed) {
  Random random(seed);
  Pairs pairs(levels);
  std::vector<std::vector<int>> rows;
  while (pairs.count() > 0) {
    std::vector<int> best;
    int best_gain = -1;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      std::vector<int> row = make_row(levels, pairs, random);
      int gain = 0;
      for (size_t f = 0; f < row.size(); ++f) gain += pairs.gain(row, f, row[f]);
      if (gain > best_gain) best = std::move(row), best_gain = gain;
    }
    pairs.close(best);
    rows.push_back(std::move(best));
  }
  return rows;
}

}  // namespace longhaul::conformance
