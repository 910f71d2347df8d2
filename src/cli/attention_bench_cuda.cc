#include "cli/attention_bench_cuda.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "attention/testing/cuda_case.h"
#include "cli/attention_flags.h"
#include "cli/attention_run.h"
#include "cli/cuda_session.h"
#include "core/cuda/devices.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

std::string length_text(int64_t length) {
  return length % 1024 == 0 ? fmt::format("{}k", length / 1024) : std::to_string(length);
}

// "attn.prefill.bf16.causal.16k", "attn.decode.bf16.32k.b8"; `what` is what is measured: "", "lambda0", "skip".
std::string row_id(const CudaBench& cuda, const std::string& what) {
  const BenchCase& bench = cuda.bench;
  const DataShape& s = bench.shape;
  const bool prefill = s.phase == Phase::prefill;
  std::string id = fmt::format("attn.{}.{}", phase_name(s.phase), s.dtype == DType::f16 ? "fp16" : "bf16");
  if (prefill && what.empty()) id += bench.causal ? ".causal" : ".full";
  if (!what.empty()) id += "." + what;
  if (!bench.causal && !(prefill && what.empty())) id += ".full";
  if (s.page_size > 0) id += s.page_size == 64 ? ".paged" : fmt::format(".page{}", s.page_size);
  if (prefill && s.query_tokens != s.length) id += ".chunk" + std::to_string(s.query_tokens);
  if (!prefill && s.query_tokens > 1) id += ".q" + std::to_string(s.query_tokens);
  id += "." + length_text(s.length);
  if (s.batch > 1) id += fmt::format(".b{}", s.batch);
  if (s.heads_q != 64 || s.heads_kv != 4 || s.d != 128) id += fmt::format(".h{}x{}.d{}", s.heads_q, s.heads_kv, s.d);
  if (cuda.captured) id += ".captured";
  if (s.kind != DataKind::runs) id += s.kind == DataKind::heavy ? ".heavy" : ".random";
  if (bench.rule == SkipRule::sum) id += ".sum";
  return id;
}

// Sparsity grows with lambda: bisection over ln(lambda).
double find_lambda(const CudaSession& session, double target) {
  constexpr double kNear = 0.02;
  double low = std::log(1e-30), high = 0;
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    (sparsity(session.count(std::exp(middle))) < target ? low : high) = middle;
  }
  const double reached = sparsity(session.count(std::exp(high)));
  if (std::fabs(reached - target) > kNear)
    throw InvalidArgument(fmt::format("sparsity {} cannot be reached on this data: lambda {:.3g} gives {:.3f}", target,
                                      std::exp(high), reached));
  return std::exp(high);
}

std::vector<BenchLine> lines_of(const CudaBench& cuda, const CudaSession& session) {
  std::vector<BenchLine> lines(1);
  lines[0].name = "dense";
  lines[0].id = row_id(cuda, "");
  if (cuda.bench.zero_and_counters) {
    lines.push_back({.name = "lambda 0", .id = row_id(cuda, "lambda0"), .lambda = 0});
  }
  for (const double target : cuda.bench.sparsities) {
    BenchLine line{.name = fmt::format("skip {:.0f} %", 100 * target), .lambda = find_lambda(session, target)};
    line.id = fmt::format("{}.s{:.0f}", row_id(cuda, "skip"), 100 * target);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

const char* cuda_rate_unit(const CudaBench& bench) {
  return bench.bench.shape.phase == Phase::prefill ? "TFLOP/s" : "TB/s";
}

BenchOutcome run_cuda_bench(CudaBench& cuda) {
  if (std::string why; !conformance::cuda_runs(why))
    throw Unsupported(fmt::format("bench cannot use a CUDA device: {}", why));
  const CudaSession session(cuda);
  BenchOutcome outcome;
  outcome.lines = lines_of(cuda, session);
  std::vector<double> lambdas;
  for (const BenchLine& line : outcome.lines) lambdas.push_back(line.lambda);
  const InterleavedTimes times = session.time(lambdas, cuda.bench.repeat);
  const double job = session.job();
  const std::vector<double> dense = session.output(-1);
  for (size_t c = 0; c < lambdas.size(); ++c) {
    BenchLine& line = outcome.lines[c];
    line.time = times.of(c);
    line.speedup = times.speedup(c, 0);
    line.rate = job / line.time.median;
    line.sparsity = line.lambda > 0 ? sparsity(session.count(line.lambda)) : 0;
    line.ideal = 1 / (1 - line.sparsity / 2);
    if (c > 0) line.error = output_error(session.output(line.lambda), dense, cuda.bench.shape.d).relative_rms;
  }
  return outcome;
}

std::vector<Json> cuda_bench_rows(const CudaBench& cuda, const BenchOutcome& outcome) {
  std::vector<Json> rows;
  const bool prefill = cuda.bench.shape.phase == Phase::prefill;
  for (const BenchLine& line : outcome.lines) {
    Json common = {{"n", line.time.n},
                   {"spread", line.time.spread()},
                   {"regime", "sustained"},
                   {"median_s", line.time.median},
                   {prefill ? "tflops_of_the_whole_job" : "tb_per_s_of_the_whole_job", line.rate / 1e12},
                   {prefill ? "flops_counted" : "bytes_counted",
                    prefill ? "4 d a visible score, skipped or not" : "key and value of every context, read or not"},
                   {"timing", cuda.timing},
                   {"case", cuda.bench.describe()},
                   {"device", cuda_devices().devices[0].name},
                   {"lambda", line.lambda < 0 ? Json("none") : Json(line.lambda)},
                   {"sparsity", line.sparsity},
                   {"output_error", line.error},
                   {"data", cuda.data}};
    const auto add = [&](const std::string& id, double value, const char* unit, const char* rival,
                         const Json& rival_value, const Json& ratio) {
      Json row = {{"id", id},      {"value", value}, {"unit", unit}, {"rival", rival}, {"rival_value", rival_value},
                  {"ratio", ratio}};
      row.update(common);
      rows.push_back(std::move(row));
    };
    if (line.lambda < 0) {
      add(line.id, line.rate / 1e12, cuda_rate_unit(cuda), "none measured here", Json(), Json());
    } else if (line.lambda == 0) {
      add(line.id, line.speedup, "x own dense", "own dense", 1, line.speedup);
    } else {
      add(line.id, line.speedup, "x own dense", "ideal 1/(1 - s/2)", line.ideal, line.speedup / line.ideal);
    }
  }
  return rows;
}

}  // namespace longhaul::cli
