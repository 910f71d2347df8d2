#include "cli/attention_run.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/params.h"

namespace longhaul::cli {
namespace {

constexpr size_t kAlignment = 64;

void* aligned(std::vector<std::byte>& memory, size_t bytes) {
  memory.resize(bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace

int64_t voting_heads(const AttentionArgs& args, Phase phase) {
  return phase == Phase::decode ? args.key.shape[args.key.rank - 2] : args.query.shape[1];
}

AttentionRun::AttentionRun(const AttentionArgs& inputs, Phase phase, const RunWants& wants)
    : args_(inputs), phase_(phase) {
  make_input_params(args_, phase_);  // checks the inputs before anything is computed from their shapes
  const int64_t tokens = args_.query.shape[0], heads = args_.query.shape[1],
                dv = args_.value.shape[args_.value.rank - 1];
  const DType dtype = args_.query.dtype == DType::f8e4m3 ? DType::bf16 : args_.query.dtype;
  const auto bytes = static_cast<size_t>(tokens * heads * dv) * dtype_size(dtype);
  args_.output = TensorView(aligned(output_, bytes), dtype, {tokens, heads, dv});
  if (wants.lse) {
    lse_.resize(static_cast<size_t>(heads * tokens));
    args_.lse = TensorView(lse_.data(), DType::f32, {heads, tokens});
  }
  if (wants.counters) {
    counters_.resize(static_cast<size_t>(voting_heads()) * 4);
    args_.counters = TensorView(counters_.data(), DType::i64, {voting_heads(), 4});
  }
  if (wants.skip_mask) {
    const SkipMaskShape shape = skip_mask_shape(args_, phase_);
    mask_.resize(static_cast<size_t>(shape.voting_heads * shape.groups * shape.blocks));
    args_.skip_mask = TensorView(mask_.data(), DType::u8, {shape.voting_heads, shape.groups, shape.blocks});
  }
  args_.workspace_bytes = attention_workspace_bytes(args_, phase_);
  args_.workspace = aligned(workspace_, args_.workspace_bytes);
}

int64_t AttentionRun::voting_heads() const { return cli::voting_heads(args_, phase_); }

void AttentionRun::run() {
  std::fill(counters_.begin(), counters_.end(), 0);
  attention(args_, phase_);
}

std::vector<double> AttentionRun::output() const {
  std::vector<double> values(static_cast<size_t>(args_.output.size()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load_as_float(args_.output.data, args_.output.dtype, static_cast<int64_t>(i));
  return values;
}

double sparsity(const std::vector<int64_t>& counters) {
  double visible = 0, skipped = 0;
  for (size_t h = 0; h < counters.size(); h += 4) {
    visible += static_cast<double>(counters[h]);
    skipped += static_cast<double>(counters[h + 1]);
  }
  return visible > 0 ? skipped / visible : 0.0;
}

std::vector<double> sparsity_by_head(const std::vector<int64_t>& counters) {
  std::vector<double> shares;
  for (size_t h = 0; h < counters.size(); h += 4)
    shares.push_back(
        sparsity({counters.begin() + static_cast<ptrdiff_t>(h), counters.begin() + static_cast<ptrdiff_t>(h) + 4}));
  return shares;
}

namespace {

struct RowSums {
  double difference = 0, size = 0, largest = 0;
};

// Squares of one row; where both are NaN, or the same infinity, there is no difference.
RowSums row_sums(const double* actual, const double* expected, size_t n) {
  RowSums sums;
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(expected[i])) sums.size += expected[i] * expected[i];
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    const double delta = std::fabs(actual[i] - expected[i]);
    sums.difference += std::isnan(delta) ? INFINITY : delta * delta;
    sums.largest = std::isnan(delta) ? INFINITY : std::max(sums.largest, delta);
  }
  return sums;
}

}  // namespace

OutputError output_error(const std::vector<double>& actual, const std::vector<double>& expected, int64_t row_size) {
  OutputError error;
  double difference = 0, size = 0;
  const auto step = static_cast<size_t>(row_size);
  for (size_t row = 0; row < expected.size(); row += step) {
    const RowSums sums = row_sums(&actual[row], &expected[row], step);
    difference += sums.difference;
    size += sums.size;
    error.largest = std::max(error.largest, sums.largest);
    if (sums.difference > 0) error.worst_row = std::max(error.worst_row, std::sqrt(sums.difference / sums.size));
  }
  if (difference > 0) error.relative_rms = std::sqrt(difference / size);
  return error;
}

}  // namespace longhaul::cli
