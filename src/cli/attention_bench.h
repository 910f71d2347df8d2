// One shape: dense, lambda 0, counters and several sparsities, in one interleaved run.
#pragma once

#include <string>
#include <vector>

#include "cli/generated_data.h"
#include "cli/support/json.h"
#include "cli/support/timing.h"

namespace longhaul::cli {

struct BenchCase {
  DataShape shape;
  bool causal = true;
  SkipRule rule = SkipRule::max;
  std::vector<double> sparsities;
  bool zero_and_counters = true;
  bool ceilings = true;
  int threads = 1, repeat = 20;

  std::string describe() const;
  /// What limits this phase: multiply-adds in prefill, reading memory in decode.
  std::string ceiling_name() const;
  std::string rate_text(double per_second) const;
};

struct BenchLine {
  std::string name{}, id{};
  double lambda = -1;  ///< -1: none
  double sparsity = 0, ideal = 1, speedup = 1, rate = 0, error = 0;
  Timing time{};
};

struct BenchOutcome {
  double ceiling = 0;  ///< flop/s or bytes/s; 0: not measured
  std::vector<BenchLine> lines;
};

BenchOutcome run_bench_case(const BenchCase& bench);

/// Rows of a result file: id, value, unit, rival, rival_value, ratio, n, spread, regime, and what was measured.
std::vector<Json> bench_rows(const BenchCase& bench, const BenchOutcome& outcome);

}  // namespace longhaul::cli
