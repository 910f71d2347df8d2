// Running the deployed kernel, or the oracle of another library's kernel.
#include <fmt/format.h>

#include <algorithm>

#include "attention/params.h"
#include "attention/params_cuda.h"
#include "attention/reference/skip_margins.h"
#include "longhaul/calibrate.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr size_t kAlignment = 64;

// Output and workspace, reused from call to call.
class Caller {
 public:
  Caller(Phase phase, int threads) : phase_(phase), threads_(threads) {}

  static int voting_heads(const AttentionArgs& args, Phase phase) {
    const TensorView& tensor = phase == Phase::prefill ? args.query : args.key;
    return static_cast<int>(tensor.shape[tensor.rank - 2]);
  }

  /// Adds to counters [heads, 4] and, with probes, to skipped [heads, n].
  void run(AttentionArgs args, SkipRule rule, std::vector<int64_t>& counters) {
    args.rule = rule;
    args.threads = threads_;
    const int64_t dv = args.value.shape[args.value.rank - 1];
    const DType dtype = args.query.dtype == DType::f8e4m3 ? DType::bf16 : args.query.dtype;
    const int64_t rows = args.query.shape[0], heads = args.query.shape[1];
    output_.resize(static_cast<size_t>(rows * heads * dv) * dtype_size(dtype));
    args.output = TensorView(output_.data(), dtype, {rows, heads, dv});
    args.counters = TensorView(counters.data(), DType::i64, {voting_heads(args, phase_), 4});
    const size_t bytes = attention_workspace_bytes(args, phase_);
    workspace_.resize(bytes + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(workspace_.data());
    args.workspace = workspace_.data() + (kAlignment - address % kAlignment) % kAlignment;
    args.workspace_bytes = bytes;
    attention(args, phase_);
  }

 private:
  Phase phase_;
  int threads_;
  std::vector<std::byte> output_, workspace_;
};

ReferenceOptions oracle_options(const Decider& decider) {
  return {.phase = decider.phase, .geometry = decider.geometry, .order = decider.order, .kernel_splits = false};
}

void check_lambdas(std::span<const float> lambdas) {
  if (lambdas.empty()) throw InvalidArgument("lambdas is empty; a calibration needs at least one");
  for (size_t i = 0; i < lambdas.size(); ++i) {
    if (!(lambdas[i] > (i == 0 ? 0.0F : lambdas[i - 1]) && lambdas[i] <= 1)) {
      throw InvalidArgument(fmt::format("lambdas[{}] is {}, but the values must ascend within (0, 1]", i, lambdas[i]));
    }
  }
}

class Ticker {
 public:
  Ticker(const Progress& progress, int64_t total) : progress_(progress), total_(total) {}
  void tick() {
    ++done_;
    if (progress_) progress_(done_, total_);
  }

 private:
  const Progress& progress_;
  int64_t total_, done_ = 0;
};

// Checks every input before anything reads its shapes; returns how many there are.
int64_t check_inputs(std::span<const CalibrationSample> samples, Phase phase) {
  int64_t inputs = 0;
  for (const CalibrationSample& sample : samples) {
    for (const CalibrationInput& input : sample.layers) {
      AttentionArgs args = input.args;
      args.lambda = Lambda::none();
      require_cpu(make_input_params(args, phase), "calibration");
      ++inputs;
    }
  }
  return inputs;
}

// Curves of one input by the kernel: a dense pass that counts for each batch of probes.
void probe_input(Caller& caller, const Decider& decider, const AttentionArgs& inputs, std::span<const float> lambdas,
                 std::span<SkipCurve> heads, Ticker& ticker) {
  for (size_t begin = 0; begin < lambdas.size(); begin += kMaxProbes) {
    const size_t n = std::min<size_t>(kMaxProbes, lambdas.size() - begin);
    std::vector<int64_t> counters(heads.size() * 4, 0), skipped(heads.size() * n, 0);
    AttentionArgs args = inputs;
    args.probe_lambdas = TensorView::of(lambdas.data() + begin, DType::f32, {static_cast<int64_t>(n)});
    args.probe_skipped =
        TensorView(skipped.data(), DType::i64, {static_cast<int64_t>(heads.size()), static_cast<int64_t>(n)});
    caller.run(args, decider.rule, counters);
    for (size_t head = 0; head < heads.size(); ++head) {
      heads[head].visible = counters[head * 4];
      heads[head].skipped.insert(heads[head].skipped.end(), &skipped[head * n], &skipped[head * n] + n);
    }
    ticker.tick();
  }
}

void margins_of_input(const Decider& decider, AttentionArgs args, std::span<const float> lambdas,
                      std::span<SkipCurve> heads) {
  args.rule = decider.rule;
  const SkipMargins margins = skip_margins(args, oracle_options(decider));
  for (size_t head = 0; head < heads.size(); ++head) {
    heads[head].visible = margins.visible(static_cast<int>(head));
    for (const float lambda : lambdas) heads[head].skipped.push_back(margins.skipped(static_cast<int>(head), lambda));
  }
}

// Lambda by query head for one input, the same for every request.
std::vector<float> lambdas_of_heads(const AttentionArgs& args, Phase phase,
                                    const std::function<float(int)>& lambda_of) {
  const int heads_q = static_cast<int>(args.query.shape[1]);
  const int group = heads_q / Caller::voting_heads(args, phase);
  std::vector<float> lambdas;
  for (int head = 0; head < heads_q; ++head) lambdas.push_back(lambda_of(head / group));
  return lambdas;
}

struct Tally {
  int64_t visible = 0, skipped = 0;
  double sparsity() const { return visible == 0 ? 0.0 : static_cast<double>(skipped) / static_cast<double>(visible); }
};

void tally_margins(const Decider& decider, const CalibrationInput& input, int sample,
                   std::span<const LambdaOf> settings, std::span<Tally> tallies) {
  AttentionArgs args = input.args;
  args.rule = decider.rule;
  const SkipMargins margins = skip_margins(args, oracle_options(decider));
  for (int head = 0; head < margins.voting_heads(); ++head) {
    for (size_t i = 0; i < settings.size(); ++i) {
      tallies[i].visible += margins.visible(head);
      tallies[i].skipped += margins.skipped(head, settings[i](sample, input.layer, head));
    }
  }
}

void tally_run(Caller& caller, const Decider& decider, const CalibrationInput& input,
               const std::function<float(int)>& lambda_of, Tally& tally) {
  const std::vector<float> lambdas = lambdas_of_heads(input.args, decider.phase, lambda_of);
  AttentionArgs args = input.args;
  const int64_t batch = args.cu_seqlens_q.shape[0] - 1, heads = static_cast<int64_t>(lambdas.size());
  args.lambda = Lambda::per_head(
      TensorView(const_cast<float*>(lambdas.data()), DType::f32, {batch, heads}, {0, 1}));  // only read
  std::vector<int64_t> counters(Caller::voting_heads(args, decider.phase) * 4, 0);
  caller.run(args, decider.rule, counters);
  for (size_t head = 0; head < counters.size() / 4; ++head) {
    tally.visible += counters[head * 4];
    tally.skipped += counters[head * 4 + 1];
  }
}

}  // namespace

Decider tensorrt_llm_decider(Phase phase) {
  Decider decider{.phase = phase, .oracle = true, .order = VisitOrder::ascending};
  decider.geometry = phase == Phase::prefill ? Geometry{.tile_keys = 128, .block_keys = 128, .group_rows = 64}
                                             : Geometry{.tile_keys = 64, .block_keys = 64, .group_rows = 0};
  return decider;
}

std::vector<SkipCurve> measure_skip_curves(std::span<const CalibrationSample> samples, const Decider& decider,
                                           std::span<const float> lambdas, const Progress& progress) {
  check_lambdas(lambdas);
  const int64_t passes = decider.oracle ? 1 : static_cast<int64_t>((lambdas.size() + kMaxProbes - 1) / kMaxProbes);
  Ticker ticker(progress, check_inputs(samples, decider.phase) * passes);
  Caller caller(decider.phase, decider.threads);
  std::vector<SkipCurve> curves;
  for (size_t s = 0; s < samples.size(); ++s) {
    for (const CalibrationInput& input : samples[s].layers) {
      const int heads = Caller::voting_heads(input.args, decider.phase);
      const size_t first = curves.size();
      for (int head = 0; head < heads; ++head) {
        curves.push_back(
            {.sample = static_cast<int>(s), .layer = input.layer, .head = head, .visible = 0, .skipped = {}});
      }
      const std::span<SkipCurve> own(curves.data() + first, heads);
      if (decider.oracle) {
        margins_of_input(decider, input.args, lambdas, own);
        ticker.tick();
      } else {
        probe_input(caller, decider, input.args, lambdas, own, ticker);
      }
    }
  }
  return curves;
}

std::vector<std::vector<double>> measure_sparsity(std::span<const CalibrationSample> samples, const Decider& decider,
                                                  std::span<const LambdaOf> settings, const Progress& progress) {
  Ticker ticker(progress,
                check_inputs(samples, decider.phase) * (decider.oracle ? 1 : static_cast<int64_t>(settings.size())));
  Caller caller(decider.phase, decider.threads);
  std::vector<std::vector<double>> result(settings.size());
  for (size_t s = 0; s < samples.size(); ++s) {
    std::vector<Tally> tallies(settings.size());
    for (const CalibrationInput& input : samples[s].layers) {
      if (decider.oracle) {
        tally_margins(decider, input, static_cast<int>(s), settings, tallies);
        ticker.tick();
        continue;
      }
      for (size_t i = 0; i < settings.size(); ++i) {
        tally_run(
            caller, decider, input, [&](int head) { return settings[i](static_cast<int>(s), input.layer, head); },
            tallies[i]);
        ticker.tick();
      }
    }
    for (size_t i = 0; i < settings.size(); ++i) result[i].push_back(tallies[i].sparsity());
  }
  return result;
}

}  // namespace longhaul
