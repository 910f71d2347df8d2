#include "cli/cuda_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "cli/attention_run.h"
#include "cli/demo/activations.h"
#include "cli/support/console.h"
#include "cli/support/shipped_files.h"

namespace longhaul::cli {
namespace {

// Copies of a cache that calls read in turn are together so large that nothing is left of one in the L2 of 50 MB when
// its turn comes again, not even where a call reads keys alone.
constexpr double kRotatedBytes = 200e6;
constexpr int kMostCopies = 256;  // a smaller cache than a 256th stays in the L2; `timing` tells the size
// A decode call may be as short as the host takes to queue it. So a sample is a graph of several, where the host's time
// counts once.
constexpr int kLeastCalls = 16;

int copies_for(double cache_bytes) {
  return std::clamp(static_cast<int>(std::ceil(kRotatedBytes / std::max(cache_bytes, 1.0))), 1, kMostCopies);
}

// Key and value of every context, without what the last pages have room for.
double cache_bytes(const DataShape& s, const AttentionArgs& args) {
  const int64_t tokens = s.page_size > 0 ? s.batch * s.length : args.key.shape[0];
  return static_cast<double>(tokens * s.heads_kv * 2 * s.d) * static_cast<double>(dtype_size(args.key.dtype));
}

}  // namespace

CudaSession::CudaSession(CudaBench& cuda) : cuda_(cuda), phase_(cuda.bench.shape.phase) {
  if (cuda.captured) {
    use_captured();
    return;
  }
  const GeneratedData data(cuda.bench.shape);
  cuda.bench.shape = data.shape();
  cuda.data = data.description();
  take(data.args());
}

void CudaSession::use_captured() {
  const Activations activations(shipped_path("data/activations.safetensors"));
  DataShape& s = cuda_.bench.shape;
  const AttentionArgs& a = activations.args();
  s.length = activations.tokens();
  s.heads_q = activations.heads_q();
  s.heads_kv = activations.heads_kv();
  s.d = activations.d();
  s.dtype = s.kv_dtype = a.query.dtype;
  s.page_size = 0;
  cuda_.data = "the shipped activations, all layers at once";
  if (phase_ == Phase::prefill) {
    s.batch = 1;
    s.query_tokens = s.length;
    take(a);
  } else {
    s.query_tokens = 1;
    const DecodeBatch batch(a, s.batch);
    cuda_.data += fmt::format("; contexts end in the second half of the text, {} keys in all", batch.keys());
    take(batch.args());
  }
}

void CudaSession::take(const AttentionArgs& host) {
  cache_bytes_ = cache_bytes(cuda_.bench.shape, host);
  const bool decode = phase_ == Phase::decode;
  inputs_ = std::make_unique<CudaInputs>(host, decode ? copies_for(cache_bytes_) : 1);
  if (decode) calls_ = std::max(inputs_->copies(), kLeastCalls);
  cuda_.timing =
      decode ? fmt::format("a sample is a graph of {} calls on {} {} of the {} of keys and values", calls_,
                           inputs_->copies(), inputs_->copies() > 1 ? "copies" : "copy", bytes_text(cache_bytes_))
             : "a sample is a call";
  args_ = inputs_->args();
  args_.causal = cuda_.bench.causal;
  args_.rule = cuda_.bench.rule;
  args_.stream = stream_.get();
  const AttentionArgs& a = args_;
  output_bytes_ = static_cast<size_t>(a.query.size()) * dtype_size(a.query.dtype);
  output_ = DeviceMemory(output_bytes_);
  args_.output =
      TensorView(output_.data(), a.query.dtype, {a.query.shape[0], a.query.shape[1], a.query.shape[2]}, Device::cuda);
  counters_ = DeviceMemory(static_cast<size_t>(voting_heads(a, phase_)) * 4 * sizeof(int64_t));
  args_.workspace_bytes = attention_workspace_bytes(args_, phase_);
  workspace_ = DeviceMemory(args_.workspace_bytes);
  args_.workspace = workspace_.data();
}

AttentionArgs CudaSession::call(double lambda, bool counters) const {
  AttentionArgs args = args_;
  if (lambda >= 0) args.lambda = Lambda::scalar(static_cast<float>(lambda));
  if (counters) args.counters = TensorView(counters_.data(), DType::i64, {voting_heads(args, phase_), 4}, Device::cuda);
  return args;
}

std::vector<int64_t> CudaSession::count(double lambda) const {
  counters_.fill(0, counters_.bytes());
  attention(call(lambda, true), phase_);
  std::vector<int64_t> counted(counters_.bytes() / sizeof(int64_t));
  counters_.read(counted.data(), counters_.bytes());
  return counted;
}

std::vector<double> CudaSession::output(double lambda) const {
  attention(call(lambda, false), phase_);
  std::vector<std::byte> bytes(output_bytes_);
  output_.read(bytes.data(), bytes.size());
  const int64_t row = args_.query.shape[2], rows = args_.query.size() / row;
  const int64_t step = std::max<int64_t>(1, rows * row / (int64_t{4} << 20));
  std::vector<double> values;
  for (int64_t r = 0; r < rows; r += step)
    for (int64_t c = 0; c < row; ++c) values.push_back(load_as_float(bytes.data(), args_.query.dtype, r * row + c));
  return values;
}

void CudaSession::queue(double lambda) const {
  AttentionArgs args = call(lambda, false);
  for (int i = 0; i < calls_; ++i) {
    inputs_->use_copy(i % inputs_->copies(), args);
    attention(args, phase_);
  }
}

InterleavedTimes CudaSession::time(const std::vector<double>& lambdas, int repeat) const {
  std::vector<std::unique_ptr<CudaGraph>> graphs;
  std::vector<std::function<void()>> bodies;
  for (const double lambda : lambdas) {
    if (phase_ == Phase::prefill) {
      bodies.emplace_back([this, lambda] { queue(lambda); });
    } else {
      graphs.push_back(std::make_unique<CudaGraph>(stream_, [&] { queue(lambda); }));
      bodies.emplace_back([this, graph = graphs.back().get()] { graph->launch(stream_); });
    }
  }
  InterleavedTimes times;
  times.samples.resize(bodies.size());
  constexpr int kWarmUps = 3;
  for (int round = -kWarmUps; round < repeat; ++round)
    for (size_t c = 0; c < bodies.size(); ++c) {
      const double seconds = device_seconds(stream_, bodies[c]) / calls_;
      if (round >= 0) times.samples[c].push_back(seconds);
    }
  return times;
}

double CudaSession::job() const {
  if (phase_ == Phase::decode) return cache_bytes_;
  const std::vector<int64_t> counters = count(0);
  double visible = 0;
  for (size_t h = 0; h < counters.size(); h += 4) visible += static_cast<double>(counters[h]);
  return visible * 4 * static_cast<double>(cuda_.bench.shape.d);
}

}  // namespace longhaul::cli
