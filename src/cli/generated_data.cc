#include "cli/generated_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "cli/attention_run.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

constexpr int64_t kRunKeys = 16;
constexpr float kScoreSpread = 4.0F;  // standard deviation of a run's score
constexpr float kShared = 0.95F;      // of a row's variance that its run or group shares; the rest is its own
constexpr size_t kTableSize =
    1 << 18;  // 1 MiB of normal numbers, reused at random offsets: drawing each afresh takes minutes

// Rows of normal numbers, cheap: slices of one table.
class NormalRows {
 public:
  explicit NormalRows(uint64_t seed) : random_(seed), table_(kTableSize) {
    std::normal_distribution<float> normal;
    for (float& value : table_) value = normal(random_);
  }
  const float* row(int64_t size) { return table_.data() + random_() % (kTableSize - static_cast<uint64_t>(size)); }
  /// The same row for the same number.
  const float* fixed(int64_t number, int64_t size) const {
    std::mt19937_64 random(static_cast<uint64_t>(number) + 0x9e3779b9);
    return table_.data() + random() % (kTableSize - static_cast<uint64_t>(size));
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

 private:
  std::mt19937_64 random_;
  std::vector<float> table_;
};

void store_row(const TensorView& view, int64_t offset, const float* shared, const float* own, float scale,
               int64_t size) {
  const float a = scale * std::sqrt(kShared), b = scale * std::sqrt(1 - kShared);
  for (int64_t i = 0; i < size; ++i) store_from_float(view.data, view.dtype, offset + i, a * shared[i] + b * own[i]);
}

// Adds scale * row.
void add_row(const TensorView& view, int64_t offset, const float* row, float scale, int64_t size) {
  for (int64_t i = 0; i < size; ++i)
    store_from_float(view.data, view.dtype, offset + i,
                     load_as_float(view.data, view.dtype, offset + i) + scale * row[i]);
}

// A query has every direction once; a key of the sink, or of the same group, has so much of it that scores of
// row . row / sqrt(d) = sqrt(d) rise by 10 and by 6.
constexpr float kSinkScore = 10, kLocalScore = 6;
constexpr int64_t kSinkKeys = 16;
constexpr uint64_t kDirections = 77;  // seed of the rows that queries and keys share

}  // namespace

std::string GeneratedData::description(const DataShape& shape) {
  if (shape.kind == DataKind::random) return "query, key and value N(0, 1)";
  return fmt::format(
      "runs of 16 keys at random offsets, scores N(0, 4^2) independent by run, group of {} rows and {}head{}",
      shape.group_rows, shape.heads_share ? "KV " : "",
      shape.kind == DataKind::heavy ? "; a sink of 16 keys 10 above, the group's own keys 6 above" : "");
}

GeneratedData::GeneratedData(const DataShape& shape) : shape_(shape) {
  if (shape_.query_tokens == 0) shape_.query_tokens = shape_.phase == Phase::prefill ? shape_.length : 1;
  const DataShape& s = shape_;
  args_.query = allocate(s.dtype, {s.batch * s.query_tokens, s.heads_q, s.d});
  if (s.page_size == 0) {
    args_.key = allocate(s.kv_dtype, {s.batch * s.length, s.heads_kv, s.d});
    args_.value = allocate(s.kv_dtype, {s.batch * s.length, s.heads_kv, s.d});
  } else {
    const int64_t pages = s.batch * ((s.length + s.page_size - 1) / s.page_size);
    args_.key = allocate(s.kv_dtype, {pages, s.page_size, s.heads_kv, s.d});
    args_.value = allocate(s.kv_dtype, {pages, s.page_size, s.heads_kv, s.d});
  }
  set_lengths();
  fill_query();
  fill_keys_and_values();
}

TensorView GeneratedData::allocate(DType dtype, std::initializer_list<int64_t> dims) {
  TensorView view(nullptr, dtype, dims);
  memory_.emplace_back(static_cast<size_t>(view.size()) * dtype_size(dtype));
  view.data = memory_.back().data();
  return view;
}

TensorView GeneratedData::own(std::vector<int32_t> values) {
  lengths_.push_back(std::move(values));
  return TensorView(lengths_.back().data(), DType::i32, {static_cast<int64_t>(lengths_.back().size())});
}

void GeneratedData::set_lengths() {
  const DataShape& s = shape_;
  const auto multiples = [&](int64_t step) {
    std::vector<int32_t> values;
    for (int64_t b = 0; b <= s.batch; ++b) values.push_back(static_cast<int32_t>(b * step));
    return values;
  };
  args_.cu_seqlens_q = own(multiples(s.query_tokens));
  if (s.page_size == 0) {
    args_.cu_seqlens_kv = own(multiples(s.length));
    return;
  }
  const int64_t pages = (s.length + s.page_size - 1) / s.page_size;
  std::vector<int32_t> table(static_cast<size_t>(s.batch * pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937_64(s.seed + 2));
  args_.page_table = own(std::move(table));
  args_.page_table = TensorView(args_.page_table.data, DType::i32, {s.batch, pages});
  args_.kv_lengths = own(std::vector<int32_t>(static_cast<size_t>(s.batch), static_cast<int32_t>(s.length)));
}

void GeneratedData::fill_query() {
  const DataShape& s = shape_;
  NormalRows normal(s.seed);
  const NormalRows shared(kDirections);
  for (int64_t h = 0; h < s.heads_q; ++h) {
    const int64_t head = h / (s.heads_q / s.heads_kv);
    const float* direction = nullptr;
    for (int64_t t = 0; t < s.batch * s.query_tokens; ++t) {
      const int64_t position = t % s.query_tokens + s.length - s.query_tokens;
      if (t % s.query_tokens == 0 || position % s.group_rows == 0) {
        const int64_t group = s.batch * s.length * head + t / s.query_tokens * s.length + position / s.group_rows;
        direction = s.heads_share ? normal.fixed(group, s.d) : normal.row(s.d);
      }
      const int64_t at = (t * s.heads_q + h) * s.d;
      if (s.kind == DataKind::random) {
        store_row(args_.query, at, normal.row(s.d), normal.row(s.d), 1, s.d);
      } else {
        store_row(args_.query, at, direction, normal.row(s.d), kScoreSpread, s.d);
      }
      if (s.kind == DataKind::heavy) {
        add_row(args_.query, at, shared.fixed(head, s.d), 1, s.d);
        add_row(args_.query, at, shared.fixed((position / s.group_rows + 1) * s.heads_kv + head, s.d), 1, s.d);
      }
    }
  }
}

void GeneratedData::fill_keys_and_values() {
  const DataShape& s = shape_;
  NormalRows normal(s.seed + 1);
  const NormalRows shared(kDirections);
  const float root = std::sqrt(static_cast<float>(s.d));
  const auto* table = static_cast<const int32_t*>(args_.page_table.data);
  const int64_t pages = s.page_size ? args_.page_table.shape[1] : 0;
  for (int64_t h = 0; h < s.heads_kv; ++h)
    for (int64_t b = 0; b < s.batch; ++b) {
      const float* direction = normal.row(s.d);
      const int64_t offset = normal.below(kRunKeys);
      for (int64_t t = 0; t < s.length; ++t) {
        if ((t + offset) % kRunKeys == 0) direction = normal.row(s.d);
        const int64_t token =
            s.page_size ? table[b * pages + t / s.page_size] * s.page_size + t % s.page_size : b * s.length + t;
        const int64_t at = (token * s.heads_kv + h) * s.d;
        store_row(args_.key, at, direction, normal.row(s.d), 1, s.d);
        const bool sink = s.kind == DataKind::heavy && t < kSinkKeys;
        store_row(args_.value, at, normal.row(s.d), normal.row(s.d), sink ? 0 : 1, s.d);
        if (s.kind != DataKind::heavy) continue;
        if (sink) add_row(args_.key, at, shared.fixed(h, s.d), kSinkScore / root, s.d);
        add_row(args_.key, at, shared.fixed((t / s.group_rows + 1) * s.heads_kv + h, s.d), kLocalScore / root, s.d);
      }
    }
}

namespace {

// Sparsity at each of the ascending lambdas, by one dense call.
std::vector<double> probe(const AttentionArgs& inputs, Phase phase, std::vector<float>& lambdas) {
  const auto n = static_cast<int64_t>(lambdas.size());
  AttentionArgs args = inputs;
  args.lambda = Lambda::none();
  const int64_t heads = voting_heads(args, phase);
  std::vector<int64_t> skipped(static_cast<size_t>(heads * n));
  args.probe_lambdas = TensorView(lambdas.data(), DType::f32, {n});
  args.probe_skipped = TensorView(skipped.data(), DType::i64, {heads, n});
  AttentionRun run(args, phase, {.lse = false});
  run.run();
  double visible = 0;
  for (size_t h = 0; h < run.counters().size(); h += 4) visible += static_cast<double>(run.counters()[h]);
  std::vector<double> shares(lambdas.size());
  for (size_t i = 0; i < skipped.size(); ++i) shares[i % lambdas.size()] += static_cast<double>(skipped[i]) / visible;
  return shares;
}

std::vector<float> log_spaced(double low, double high, int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i)
    values.push_back(static_cast<float>(std::exp(std::lerp(std::log(low), std::log(high), i / (n - 1.0)))));
  return values;
}

}  // namespace

float lambda_for_sparsity(const AttentionArgs& args, Phase phase, double target) {
  constexpr int kProbes = 32;
  constexpr double kNear = 0.02;
  double low = 1e-30, high = 1, found = 0;
  for (int round = 0; round < 2; ++round) {
    std::vector<float> lambdas = log_spaced(low, high, kProbes);
    lambdas.back() = std::min(lambdas.back(), 1.0F);
    const std::vector<double> shares = probe(args, phase, lambdas);
    size_t at = 0;
    while (at + 1 < shares.size() && shares[at] < target) ++at;
    const size_t below = at > 0 ? at - 1 : 0;
    const double span = shares[at] - shares[below];
    const double share = span > 0 ? std::clamp((target - shares[below]) / span, 0.0, 1.0) : 1.0;
    found = std::exp(std::lerp(std::log(lambdas[below]), std::log(lambdas[at]), share));
    low = lambdas[below];
    high = lambdas[at];
    const bool last = round == 1 || !(low < high);
    if (last && std::fabs(std::lerp(shares[below], shares[at], share) - target) > kNear)
      throw InvalidArgument(
          fmt::format("sparsity {} cannot be reached on this data: lambda {} gives {:.3f}", target, found, shares[at]));
    if (last) break;
  }
  return static_cast<float>(found);
}

}  // namespace longhaul::cli
