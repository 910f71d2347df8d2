#include "cli/attention_bench_cuda.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "attention/testing/cuda_case.h"
#include "cli/attention_flags.h"
#include "cli/attention_run.h"
#include "cli/cuda_inputs.h"
#include "cli/demo/activations.h"
#include "cli/support/console.h"
#include "cli/support/shipped_files.h"
#include "core/cuda/devices.h"
#include "core/cuda/memory.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

std::string length_text(int64_t length) {
  return length % 1024 == 0 ? fmt::format("{}k", length / 1024) : std::to_string(length);
}

// "attn.prefill.bf16.causal.16k"; `what` is what is measured: "", "lambda0", "skip", "effective".
std::string row_id(const CudaBench& cuda, const std::string& what) {
  const BenchCase& bench = cuda.bench;
  const DataShape& s = bench.shape;
  std::string id = fmt::format("attn.prefill.{}", s.dtype == DType::f16 ? "fp16" : "bf16");
  if (what.empty()) id += bench.causal ? ".causal" : ".full";
  if (!what.empty()) id += "." + what;
  if (!what.empty() && !bench.causal) id += ".full";
  if (s.page_size > 0) id += s.page_size == 64 ? ".paged" : fmt::format(".page{}", s.page_size);
  if (s.query_tokens != s.length) id += ".chunk" + std::to_string(s.query_tokens);
  id += "." + length_text(s.length);
  if (s.batch > 1) id += fmt::format(".b{}", s.batch);
  if (s.heads_q != 64 || s.heads_kv != 4 || s.d != 128) id += fmt::format(".h{}x{}.d{}", s.heads_q, s.heads_kv, s.d);
  if (cuda.captured) id += ".captured";
  if (s.kind != DataKind::runs) id += s.kind == DataKind::heavy ? ".heavy" : ".random";
  if (bench.rule == SkipRule::sum) id += ".sum";
  return id;
}

// Host data, its copy on the device, and the calls on it.
class Session {
 public:
  explicit Session(CudaBench& cuda) : cuda_(cuda) {
    BenchCase& bench = cuda.bench;
    if (cuda.captured) {
      activations_ = std::make_unique<Activations>(shipped_path("data/activations.safetensors"));
      describe_captured();
      inputs_ = std::make_unique<CudaInputs>(activations_->args());
    } else {
      generated_ = std::make_unique<GeneratedData>(bench.shape);
      bench.shape = generated_->shape();
      cuda.data = generated_->description();
      inputs_ = std::make_unique<CudaInputs>(generated_->args());
    }
    args_ = inputs_->args();
    args_.causal = bench.causal;
    args_.rule = bench.rule;
    args_.stream = stream_.get();
    const AttentionArgs& a = args_;
    output_bytes_ = static_cast<size_t>(a.query.size()) * dtype_size(a.query.dtype);
    output_ = DeviceMemory(output_bytes_);
    args_.output =
        TensorView(output_.data(), a.query.dtype, {a.query.shape[0], a.query.shape[1], a.query.shape[2]}, Device::cuda);
    counters_ = DeviceMemory(static_cast<size_t>(a.query.shape[1]) * 4 * sizeof(int64_t));
    args_.workspace_bytes = attention_workspace_bytes(args_, Phase::prefill);
    workspace_ = DeviceMemory(args_.workspace_bytes);
    args_.workspace = workspace_.data();
  }

  AttentionArgs call(double lambda, bool counters) const {
    AttentionArgs args = args_;
    if (lambda >= 0) args.lambda = Lambda::scalar(static_cast<float>(lambda));
    if (counters) args.counters = TensorView(counters_.data(), DType::i64, {args.query.shape[1], 4}, Device::cuda);
    return args;
  }
  std::vector<int64_t> count(double lambda) const {
    counters_.fill(0, counters_.bytes());
    prefill(call(lambda, true));
    std::vector<int64_t> counted(counters_.bytes() / sizeof(int64_t));
    counters_.read(counted.data(), counters_.bytes());
    return counted;
  }
  // Some 4 million elements of the output, in whole rows, evenly spaced.
  std::vector<double> output(double lambda) const {
    prefill(call(lambda, false));
    std::vector<std::byte> bytes(output_bytes_);
    output_.read(bytes.data(), bytes.size());
    const int64_t row = args_.query.shape[2], rows = args_.query.size() / row;
    const int64_t step = std::max<int64_t>(1, rows * row / (int64_t{4} << 20));
    std::vector<double> values;
    for (int64_t r = 0; r < rows; r += step)
      for (int64_t c = 0; c < row; ++c) values.push_back(load_as_float(bytes.data(), args_.query.dtype, r * row + c));
    return values;
  }
  double seconds(const AttentionArgs& args) const {
    return device_seconds(stream_, [&] { prefill(args); });
  }

 private:
  void describe_captured() {
    const AttentionArgs& a = activations_->args();
    DataShape& s = cuda_.bench.shape;
    s.length = s.query_tokens = a.query.shape[0];
    s.batch = 1;
    s.heads_q = a.query.shape[1];
    s.heads_kv = a.key.shape[1];
    s.d = a.query.shape[2];
    s.dtype = s.kv_dtype = a.query.dtype;
    s.page_size = 0;
    cuda_.data = "the shipped activations, all layers at once";
  }

  CudaBench& cuda_;
  std::unique_ptr<Activations> activations_;
  std::unique_ptr<GeneratedData> generated_;
  std::unique_ptr<CudaInputs> inputs_;
  CudaStream stream_;
  AttentionArgs args_;
  size_t output_bytes_ = 0;
  DeviceMemory output_, counters_, workspace_;
};

// Sparsity grows with lambda: bisection over ln(lambda).
double find_lambda(const Session& session, double target) {
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

std::vector<BenchLine> lines_of(const CudaBench& cuda, const Session& session) {
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

BenchOutcome run_cuda_bench(CudaBench& cuda) {
  if (std::string why; !conformance::cuda_runs(why))
    throw Unsupported(fmt::format("bench cannot use a CUDA device: {}", why));
  Session session(cuda);
  BenchOutcome outcome;
  outcome.lines = lines_of(cuda, session);
  std::vector<AttentionArgs> calls;
  for (const BenchLine& line : outcome.lines) calls.push_back(session.call(line.lambda, false));
  InterleavedTimes times;
  times.samples.resize(calls.size());
  constexpr int kWarmUps = 3;
  for (int round = -kWarmUps; round < cuda.bench.repeat; ++round)
    for (size_t c = 0; c < calls.size(); ++c) {
      const double seconds = session.seconds(calls[c]);
      if (round >= 0) times.samples[c].push_back(seconds);
    }
  double visible = 0;
  const std::vector<int64_t> counters = session.count(0);
  for (size_t h = 0; h < counters.size(); h += 4) visible += static_cast<double>(counters[h]);
  const double flops = visible * 4 * static_cast<double>(cuda.bench.shape.d);
  const std::vector<double> dense = session.output(-1);
  for (size_t c = 0; c < calls.size(); ++c) {
    BenchLine& line = outcome.lines[c];
    line.time = times.of(c);
    line.speedup = times.speedup(c, 0);
    line.rate = flops / line.time.median;
    line.sparsity = line.lambda > 0 ? sparsity(session.count(line.lambda)) : 0;
    line.ideal = 1 / (1 - line.sparsity / 2);
    if (c > 0) line.error = output_error(session.output(line.lambda), dense, cuda.bench.shape.d).relative_rms;
  }
  return outcome;
}

std::vector<Json> cuda_bench_rows(const CudaBench& cuda, const BenchOutcome& outcome) {
  std::vector<Json> rows;
  for (const BenchLine& line : outcome.lines) {
    Json common = {{"n", line.time.n},
                   {"spread", {line.time.p10, line.time.p90}},
                   {"regime", "sustained"},
                   {"median_s", line.time.median},
                   {"tflops_of_the_whole_job", line.rate / 1e12},
                   {"flops_counted", "4 d a visible score, skipped or not"},
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
      add(line.id, line.rate / 1e12, "TFLOP/s", "none measured here", Json(), Json());
    } else if (line.lambda == 0) {
      add(line.id, line.speedup, "x own dense", "own dense", 1, line.speedup);
    } else {
      add(line.id, line.speedup, "x own dense", "ideal 1/(1 - s/2)", line.ideal, line.speedup / line.ideal);
    }
  }
  return rows;
}

}  // namespace longhaul::cli
