#include "cli/attention_bench.h"

#include <fmt/core.h>

#include <functional>
#include <memory>

#include "cli/attention_flags.h"
#include "cli/attention_run.h"
#include "cli/ceilings.h"
#include "cli/support/console.h"
#include "core/cpu_features.h"

namespace longhaul::cli {
namespace {

std::string short_dtype(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::f8e4m3:
      return "fp8";
    default:
      return "fp32";
  }
}

std::string short_length(int64_t length) {
  return length % 1024 == 0 ? fmt::format("{}k", length / 1024) : std::to_string(length);
}

bool standard_heads(const DataShape& s) { return s.heads_q == 8 && s.heads_kv == 2 && s.d == 128; }

// "attn.cpu.prefill.bf16.8k", with what differs from the shapes of the targets as a suffix.
std::string base_id(const BenchCase& bench) {
  const DataShape& s = bench.shape;
  std::string id = "attn.cpu." + phase_name(s.phase) + "." + short_dtype(s.dtype);
  if (s.kv_dtype != s.dtype) id += ".kv" + short_dtype(s.kv_dtype);
  if (s.batch > 1) id += fmt::format(".b{}", s.batch);
  id += "." + short_length(s.length);
  if (!standard_heads(s)) id += fmt::format(".h{}x{}.d{}", s.heads_q, s.heads_kv, s.d);
  if (!bench.causal) id += ".full";
  if (s.page_size > 0) id += fmt::format(".page{}", s.page_size);
  if (bench.rule == SkipRule::sum) id += ".sum";
  return id;
}

// The targets name skip rows without dtype and length: those of the standard shapes.
std::string skip_id(const BenchCase& bench) {
  const std::string id = base_id(bench);
  if (id == "attn.cpu.prefill.bf16.8k" || id == "attn.cpu.decode.bf16.b8.32k")
    return "attn.cpu." + phase_name(bench.shape.phase);
  return id;
}

// Work of the whole job, skipped or not: multiply-adds of the visible scores, or the bytes of K and V.
double job_size(const BenchCase& bench, const AttentionArgs& args, const std::vector<int64_t>& counters) {
  const DataShape& s = bench.shape;
  if (s.phase == Phase::decode)
    return static_cast<double>(s.batch * s.length * s.heads_kv * 2 * s.d) *
           static_cast<double>(dtype_size(args.key.dtype));
  double visible = 0;
  for (size_t h = 0; h < counters.size(); h += 4) visible += static_cast<double>(counters[h]);
  return visible * 4 * static_cast<double>(s.d);
}

struct Candidate {
  BenchLine line;
  std::unique_ptr<AttentionRun> run;
};

Candidate make_candidate(const GeneratedData& data, const BenchCase& bench, std::string name, std::string id,
                         double lambda, bool counters) {
  AttentionArgs args = data.args();
  args.causal = bench.causal;
  args.threads = bench.threads;
  args.rule = bench.rule;
  if (lambda >= 0) args.lambda = Lambda::scalar(static_cast<float>(lambda));
  Candidate candidate;
  candidate.line.name = std::move(name);
  candidate.line.id = std::move(id);
  candidate.line.lambda = lambda;
  candidate.run = std::make_unique<AttentionRun>(args, bench.shape.phase, RunWants{.counters = counters, .lse = false});
  return candidate;
}

std::vector<Candidate> make_candidates(const GeneratedData& data, const BenchCase& bench) {
  const std::string base = base_id(bench), skip = skip_id(bench);
  std::vector<Candidate> candidates;
  candidates.push_back(make_candidate(data, bench, "dense", base, -1, false));
  if (bench.zero_and_counters) {
    candidates.push_back(make_candidate(data, bench, "dense, counters on", skip + ".counters", -1, true));
    candidates.push_back(make_candidate(data, bench, "lambda 0", skip + ".lambda0", 0, false));
  }
  AttentionArgs probing = candidates[0].run->args();
  for (const double target : bench.sparsities) {
    const float lambda = lambda_for_sparsity(probing, bench.shape.phase, target);
    candidates.push_back(make_candidate(data, bench, fmt::format("skip {:.0f} %", 100 * target),
                                        skip + fmt::format(".skip.s{:.0f}", 100 * target), lambda, true));
  }
  return candidates;
}

}  // namespace

std::string BenchCase::describe() const {
  const DataShape& s = shape;
  return fmt::format(
      "{}: {}{} query / {} KV heads, head size {}, {}{} tokens{}{}, {}, rule {}", phase_name(s.phase),
      s.batch > 1 ? fmt::format("batch {}, ", s.batch) : "", s.heads_q, s.heads_kv, s.d,
      s.query_tokens > 0 ? fmt::format("{} query token{} on ", s.query_tokens, s.query_tokens > 1 ? "s" : "") : "",
      s.length, s.page_size > 0 ? fmt::format(" in pages of {}", s.page_size) : "", causal ? ", causal" : ", full",
      s.kv_dtype == s.dtype ? std::string(dtype_name(s.dtype))
                            : fmt::format("{} on {}", dtype_name(s.dtype), dtype_name(s.kv_dtype)),
      rule_name(rule));
}

std::string BenchCase::ceiling_name() const {
  return shape.phase == Phase::prefill ? fmt::format("fp32 multiply-add peak ({})", isa_name(selected_isa()))
                                       : "read bandwidth";
}

std::string BenchCase::rate_text(double per_second) const {
  return fmt::format("{} {}", short_number(per_second / 1e9), shape.phase == Phase::prefill ? "GFLOP/s" : "GB/s");
}

BenchOutcome run_bench_case(const BenchCase& bench) {
  const GeneratedData data(bench.shape);
  std::vector<Candidate> candidates = make_candidates(data, bench);
  std::vector<std::function<void()>> bodies;
  for (Candidate& candidate : candidates) bodies.push_back([&candidate] { candidate.run->run(); });
  BenchOutcome outcome;
  const auto ceiling = [&] {
    return bench.shape.phase == Phase::prefill ? fma_peak(bench.threads) : read_bandwidth(bench.threads);
  };
  if (bench.ceilings) outcome.ceiling = ceiling();
  const InterleavedTimes times =
      time_interleaved(bodies, bench.repeat, "measuring", [&bench] { evict_caches(bench.threads); });
  if (bench.ceilings) outcome.ceiling = std::max(outcome.ceiling, ceiling());

  const std::vector<double> dense = candidates[0].run->output();
  AttentionRun counted(candidates[0].run->args(), bench.shape.phase, {.counters = true, .lse = false});
  counted.run();
  const double job = job_size(bench, data.args(), counted.counters());
  for (size_t c = 0; c < candidates.size(); ++c) {
    BenchLine& line = candidates[c].line;
    line.time = times.of(c);
    line.speedup = times.speedup(c, 0);
    line.rate = job / line.time.median;
    line.sparsity = sparsity(candidates[c].run->counters());
    line.ideal = 1 / (1 - line.sparsity / 2);
    line.error = c == 0 ? 0 : output_error(candidates[c].run->output(), dense, bench.shape.d).relative_rms;
    outcome.lines.push_back(line);
  }
  return outcome;
}

std::vector<Json> bench_rows(const BenchCase& bench, const BenchOutcome& outcome) {
  std::vector<Json> rows;
  const bool prefill = bench.shape.phase == Phase::prefill;
  for (const BenchLine& line : outcome.lines) {
    Json row = {{"id", line.id}};
    if (line.lambda > 0) {
      row.update({{"value", line.speedup},
                  {"unit", "x own dense"},
                  {"rival", "ideal 1/(1 - s/2)"},
                  {"rival_value", line.ideal},
                  {"ratio", line.speedup / line.ideal}});
    } else if (&line != &outcome.lines[0]) {
      row.update({{"value", line.speedup},
                  {"unit", "x own dense"},
                  {"rival", "own dense"},
                  {"rival_value", 1},
                  {"ratio", line.speedup}});
    } else {
      const bool ceiling = outcome.ceiling > 0;
      row["id"] = line.id + (prefill ? ".peak" : ".bandwidth");
      row.update({{"value", line.rate / 1e9},
                  {"unit", prefill ? "GFLOP/s" : "GB/s"},
                  {"rival", bench.ceiling_name()},
                  {"rival_value", ceiling ? Json(outcome.ceiling / 1e9) : Json()},
                  {"ratio", ceiling ? Json(line.rate / outcome.ceiling) : Json()}});
    }
    row.update({{"n", line.time.n},
                {"spread", line.time.spread()},
                {"regime", "sustained, caches evicted before each call"},
                {"median_s", line.time.median},
                {"case", bench.describe()},
                {"threads", bench.threads},
                {"lambda", line.lambda < 0 ? Json("none") : Json(line.lambda)},
                {"sparsity", line.sparsity},
                {"output_error", line.error},
                {"data", GeneratedData::description(bench.shape)}});
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace longhaul::cli
