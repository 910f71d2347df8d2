// Times that can be compared: interleaved runs, medians.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/support/json.h"

namespace longhaul::cli {

struct Timing {
  double median = 0, p10 = 0, p90 = 0;  // seconds
  int n = 0;
  /// `spread` of a result file: (p90 - p10) / median.
  double spread() const { return median > 0 ? (p90 - p10) / median : 0; }
  Json json() const;
};

Timing summarize(std::vector<double> seconds);

/// One sample of each candidate in turn, `repeats` times after a round of warm-up, so that a machine whose speed drifts
/// treats all alike. `before` runs before each sample, outside its time. The result is parallel to `candidates`;
/// samples[c][r] are of the same round r for every c.
struct InterleavedTimes {
  std::vector<std::vector<double>> samples;
  Timing of(size_t candidate) const { return summarize(samples[candidate]); }
  /// Median over the rounds of time(base) / time(candidate).
  double speedup(size_t candidate, size_t base) const;
};
InterleavedTimes time_interleaved(const std::vector<std::function<void()>>& candidates, int repeats,
                                  const std::string& label, const std::function<void()>& before = {});

}  // namespace longhaul::cli
