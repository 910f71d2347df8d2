#include "cli/support/timing.h"

#include <algorithm>
#include <chrono>

#include "cli/support/console.h"

namespace longhaul::cli {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Json Timing::json() const { return {{"median_s", median}, {"p10_s", p10}, {"p90_s", p90}, {"n", n}}; }

Timing summarize(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  return {quantile(seconds, 0.5), quantile(seconds, 0.1), quantile(seconds, 0.9), static_cast<int>(seconds.size())};
}

double InterleavedTimes::speedup(size_t candidate, size_t base) const {
  std::vector<double> ratios;
  for (size_t r = 0; r < samples[candidate].size(); ++r) ratios.push_back(samples[base][r] / samples[candidate][r]);
  return summarize(std::move(ratios)).median;
}

InterleavedTimes time_interleaved(const std::vector<std::function<void()>>& candidates, int repeats,
                                  const std::string& label, const std::function<void()>& before) {
  InterleavedTimes times;
  times.samples.resize(candidates.size());
  const double rounds = repeats + 1;
  Progress progress(label, rounds * static_cast<double>(candidates.size()));
  double done = 0;
  for (int round = 0; round <= repeats; ++round) {
    for (size_t c = 0; c < candidates.size(); ++c) {
      if (before) before();
      const double seconds = seconds_of(candidates[c]);
      if (round > 0) times.samples[c].push_back(seconds);
      progress.set(++done);
    }
  }
  return times;
}

}  // namespace longhaul::cli
