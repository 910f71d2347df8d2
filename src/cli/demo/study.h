// One phase on real activations: what each lambda earns and costs, and what the published order would earn at the same
// cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/attention_run.h"
#include "cli/support/json.h"
#include "cli/support/timing.h"
#include "longhaul/attention.h"

namespace longhaul::cli {

struct StudyInput {
  Phase phase;
  AttentionArgs full;    ///< the job that is timed
  AttentionArgs sample;  ///< the part of it on which the published order is computed by the oracle
  /// The published kernels' votes: ascending, 64 rows x 128 keys in prefill, all heads of a KV head x 64 keys in
  /// decode.
  Geometry published;
  std::vector<double> lambdas;            ///< ascending, 0 allowed
  std::vector<double> published_lambdas;  ///< ascending
  int repeat = 5, threads = 1;
};

struct StudyRow {
  std::optional<double> lambda;  ///< none: dense
  double sparsity = 0, speedup = 1, ideal = 1, dropped_mass = 0;
  Timing time;
  OutputError error;  ///< against the dense kernel
  double sample_sparsity = 0, sample_error = 0;
  std::optional<double> published_sparsity;  ///< at sample_error; none where that lies outside the published curve
};

struct CurvePoint {
  double lambda, sparsity, error;
};

struct Study {
  Phase phase{};
  Geometry own{}, published{};
  std::vector<StudyRow> rows;
  std::vector<CurvePoint> published_curve;  ///< on the sample
  int64_t sample_queries = 0, queries = 0;
};

Study run_study(const StudyInput& input);

/// What `curve` (ascending in error) gives at `error`, linear in the logarithm of the error; none outside.
std::optional<double> sparsity_at_error(const std::vector<CurvePoint>& curve, double error);
/// The lambda at which `curve` (ascending in sparsity) reaches `sparsity`; none outside.
std::optional<double> lambda_at_sparsity(const std::vector<CurvePoint>& curve, double sparsity);

std::string study_table(const Study& study);
Json study_json(const Study& study);

}  // namespace longhaul::cli
