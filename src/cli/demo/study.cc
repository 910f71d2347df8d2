#include "cli/demo/study.h"

#include <cmath>
#include <memory>

#include "attention/reference/reference.h"
#include "cli/attention_flags.h"
#include "cli/support/console.h"

namespace longhaul::cli {
namespace {

std::vector<std::unique_ptr<AttentionRun>> make_runs(const AttentionArgs& inputs, const StudyInput& study) {
  std::vector<std::unique_ptr<AttentionRun>> runs;
  AttentionArgs args = inputs;
  args.threads = study.threads;
  runs.push_back(std::make_unique<AttentionRun>(args, study.phase));
  for (const double lambda : study.lambdas) {
    args.lambda = Lambda::scalar(static_cast<float>(lambda));
    runs.push_back(std::make_unique<AttentionRun>(args, study.phase));
  }
  return runs;
}

// The share of the dense softmax sum that the skipped keys held, mean over rows and heads. A kept sum follows from the
// log-sum-exp.
double dropped_mass(const std::vector<float>& lse, const std::vector<float>& dense) {
  double sum = 0;
  for (size_t i = 0; i < lse.size(); ++i)
    if (std::isfinite(dense[i])) sum += 1 - std::exp(std::min(0.0, static_cast<double>(lse[i]) - dense[i]));
  return lse.empty() ? 0 : sum / static_cast<double>(lse.size());
}

void measure_full(const StudyInput& input, Study& study) {
  auto runs = make_runs(input.full, input);
  std::vector<std::function<void()>> bodies;
  for (auto& run : runs) bodies.push_back([&run] { run->run(); });
  const InterleavedTimes times = time_interleaved(bodies, input.repeat, phase_name(input.phase) + ": timing");
  const std::vector<double> dense = runs[0]->output();
  for (size_t i = 0; i < runs.size(); ++i) {
    StudyRow row;
    if (i > 0) row.lambda = input.lambdas[i - 1];
    row.sparsity = sparsity(runs[i]->counters());
    row.time = times.of(i);
    row.speedup = times.speedup(i, 0);
    row.ideal = 1 / (1 - row.sparsity / 2);
    row.dropped_mass = dropped_mass(runs[i]->lse(), runs[0]->lse());
    row.error = output_error(runs[i]->output(), dense, runs[i]->args().output.shape[2]);
    study.rows.push_back(row);
  }
  study.queries = input.full.query.shape[0];
}

void measure_sample(const StudyInput& input, Study& study) {
  auto runs = make_runs(input.sample, input);
  for (auto& run : runs) run->run();
  const std::vector<double> dense = runs[0]->output();
  for (size_t i = 0; i < runs.size(); ++i) {
    study.rows[i].sample_sparsity = sparsity(runs[i]->counters());
    study.rows[i].sample_error = output_error(runs[i]->output(), dense, runs[i]->args().output.shape[2]).relative_rms;
  }
  study.sample_queries = input.sample.query.shape[0];
}

// The oracle at every lambda of the published order.
std::vector<CurvePoint> published_curve(const StudyInput& input) {
  ReferenceOptions options;
  options.phase = input.phase;
  options.geometry = input.published;
  options.order = VisitOrder::ascending;
  options.kernel_splits = false;
  Progress progress(phase_name(input.phase) + ": the published order, by the oracle",
                    static_cast<double>(input.published_lambdas.size() + 1));
  const std::vector<double> dense = reference_attention(input.sample, options).output;
  std::vector<CurvePoint> curve;
  for (const double lambda : input.published_lambdas) {
    progress.set(static_cast<double>(curve.size() + 1));
    AttentionArgs args = input.sample;
    args.lambda = Lambda::scalar(static_cast<float>(lambda));
    const ReferenceResult result = reference_attention(args, options);
    const int64_t dv = args.value.shape[args.value.rank - 1];
    curve.push_back({lambda, sparsity(result.counters), output_error(result.output, dense, dv).relative_rms});
  }
  return curve;
}

std::string cell(const std::optional<double>& share) { return share ? percent(*share) : "-"; }

// Between neighbours of `curve` whose key brackets `at`, by the logarithm of the key or of the result.
template <class Key, class Result>
std::optional<double> interpolate(const std::vector<CurvePoint>& curve, double at, Key key, Result result) {
  for (size_t i = 0; i + 1 < curve.size(); ++i) {
    const double low = key(curve[i]), high = key(curve[i + 1]);
    if (!(at >= low && at <= high && high > low)) continue;
    return std::lerp(result(curve[i]), result(curve[i + 1]), (at - low) / (high - low));
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> sparsity_at_error(const std::vector<CurvePoint>& curve, double error) {
  if (!(error > 0)) return std::nullopt;
  return interpolate(
      curve, std::log(error), [](const CurvePoint& p) { return std::log(p.error); },
      [](const CurvePoint& p) { return p.sparsity; });
}

std::optional<double> lambda_at_sparsity(const std::vector<CurvePoint>& curve, double target) {
  const auto log_lambda = interpolate(
      curve, target, [](const CurvePoint& p) { return p.sparsity; },
      [](const CurvePoint& p) { return std::log(p.lambda); });
  return log_lambda ? std::optional(std::exp(*log_lambda)) : std::nullopt;
}

Study run_study(const StudyInput& input) {
  Study study;
  study.phase = input.phase;
  study.own = kernel_geometry(input.phase);
  study.published = input.published;
  measure_full(input, study);
  measure_sample(input, study);
  study.published_curve = published_curve(input);
  for (StudyRow& row : study.rows) row.published_sparsity = sparsity_at_error(study.published_curve, row.sample_error);
  return study;
}

std::string study_table(const Study& study) {
  Table table({"lambda", "sparsity", "time", "speed-up", "ideal", "of ideal", "output error", "worst row",
               "mass dropped", "published order*"});
  for (const StudyRow& row : study.rows) {
    if (!row.lambda) {
      table.add({"none", "dense", duration_text(row.time.median), "1.00", "", "", "", "", "", ""});
      continue;
    }
    table.add({fmt::format("{:g}", *row.lambda), percent(row.sparsity), duration_text(row.time.median),
               fmt::format("{:.2f}", row.speedup), fmt::format("{:.2f}", row.ideal), percent(row.speedup / row.ideal),
               short_number(row.error.relative_rms), short_number(row.error.worst_row),
               row.dropped_mass > 0 ? fmt::format("{:.3g} %", 100 * row.dropped_mass) : "0",
               row.sample_error > 0 ? cell(row.published_sparsity) : ""});
  }
  return table.text();
}

Json study_json(const Study& study) {
  Json rows = Json::array(), curve = Json::array();
  for (const StudyRow& row : study.rows)
    rows.push_back(
        {{"lambda", row.lambda ? Json(*row.lambda) : Json("none")},
         {"sparsity", row.sparsity},
         {"time", row.time.json()},
         {"speedup", row.speedup},
         {"ideal", row.ideal},
         {"output_error", row.error.relative_rms},
         {"worst_row", row.error.worst_row},
         {"dropped_mass", row.dropped_mass},
         {"sample_sparsity", row.sample_sparsity},
         {"sample_error", row.sample_error},
         {"published_sparsity_at_same_error", row.published_sparsity ? Json(*row.published_sparsity) : Json()}});
  for (const CurvePoint& point : study.published_curve)
    curve.push_back({{"lambda", point.lambda}, {"sparsity", point.sparsity}, {"output_error", point.error}});
  return {{"phase", phase_name(study.phase)},
          {"geometry", geometry_json(study.own)},
          {"rows", rows},
          {"published",
           {{"order", "ascending"},
            {"geometry", geometry_json(study.published)},
            {"queries", study.sample_queries},
            {"of_queries", study.queries},
            {"curve", curve}}}};
}

}  // namespace longhaul::cli
