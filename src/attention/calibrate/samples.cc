// Samples cut out of a captured prefill.
#include <fmt/format.h>

#include <algorithm>

#include "longhaul/calibrate.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr int64_t kPage = 32;

// The length of a capture: one causal request, ragged, queries = keys.
int64_t capture_length(std::span<const CalibrationInput> capture) {
  if (capture.empty()) throw InvalidArgument("the capture has no layers");
  const int64_t length = capture[0].args.query.shape[0];
  for (const CalibrationInput& input : capture) {
    const AttentionArgs& args = input.args;
    const auto fail = [&](const std::string& what) {
      throw InvalidArgument(
          fmt::format("layer {} of the capture {}; samples can be cut only from one causal prefill whose queries "
                      "and keys are the same tokens",
                      input.layer, what));
    };
    if (args.page_table.given() || args.key.rank != 3) fail("is paged");
    if (!args.causal) fail("is not causal");
    if (args.cu_seqlens_q.given() && args.cu_seqlens_q.shape[0] != 2) fail("holds several requests");
    if (args.query.rank != 3 || args.query.shape[0] != length || args.key.shape[0] != length ||
        args.value.shape[0] != length) {
      fail(fmt::format("has query {}, key {} and value {}", args.query.describe(), args.key.describe(),
                       args.value.describe()));
    }
  }
  return length;
}

TensorView slice(TensorView view, int64_t begin, int64_t end) {
  view.data =
      static_cast<std::byte*>(view.data) + begin * view.stride[0] * static_cast<int64_t>(dtype_size(view.dtype));
  view.shape[0] = end - begin;
  return view;
}

// [tokens, heads, d] as [tokens / kPage, kPage, heads, d], so that requests of several lengths share the same keys.
TensorView as_pages(const TensorView& tokens, int64_t pages) {
  TensorView view = tokens;
  view.rank = 4;
  view.shape = {pages, kPage, tokens.shape[1], tokens.shape[2]};
  view.stride = {kPage * tokens.stride[0], tokens.stride[0], tokens.stride[1], tokens.stride[2]};
  return view;
}

AttentionArgs inputs_only(const AttentionArgs& args) {
  AttentionArgs result = args;
  result.output = result.lse = result.counters = result.skip_mask = result.probe_lambdas = result.probe_skipped = {};
  result.lambda = Lambda::none();
  result.workspace = nullptr;
  result.workspace_bytes = 0;
  return result;
}

}  // namespace

CalibrationSample prefill_sample(std::span<const CalibrationInput> capture, int64_t begin, int64_t end) {
  const int64_t length = capture_length(capture);
  if (begin < 0 || begin >= end || end > length) {
    throw InvalidArgument(
        fmt::format("the sample's queries are [{}, {}); allowed are ranges within [0, {})", begin, end, length));
  }
  CalibrationSample sample;
  sample.name = begin == 0 ? fmt::format("prefill of {}", end) : fmt::format("prefill of {} to {}", begin, end);
  sample.context_length = end;
  for (const CalibrationInput& input : capture) {
    const auto lengths = std::make_shared<const std::vector<int32_t>>(
        std::vector<int32_t>{0, static_cast<int32_t>(end - begin), 0, static_cast<int32_t>(end)});
    AttentionArgs args = inputs_only(input.args);
    args.query = slice(args.query, begin, end);
    args.key = slice(args.key, 0, end);
    args.value = slice(args.value, 0, end);
    args.cu_seqlens_q = TensorView::of(lengths->data(), DType::i32, {2});
    args.cu_seqlens_kv = TensorView::of(lengths->data() + 2, DType::i32, {2});
    sample.layers.push_back({input.layer, args, lengths});
  }
  return sample;
}

CalibrationSample decode_sample(std::span<const CalibrationInput> capture, int64_t length, int tokens) {
  const int64_t captured = capture_length(capture);
  if (length < kPage || length > captured) {
    throw InvalidArgument(fmt::format(
        "length is {}; allowed for a decode sample are {} to the {} tokens of the capture", length, kPage, captured));
  }
  length = length / kPage * kPage;
  if (tokens < 1 || tokens > length) {
    throw InvalidArgument(
        fmt::format("tokens is {}; allowed for a decode sample of length {} are 1 to {}", tokens, length, length));
  }
  const int64_t step = std::max<int64_t>(1, length / 16 / tokens);
  const int64_t pages = length / kPage;
  // cu_seqlens_q, kv_lengths, page_table.
  std::vector<int32_t> numbers;
  for (int i = 0; i <= tokens; ++i) numbers.push_back(i);
  for (int i = 0; i < tokens; ++i) numbers.push_back(static_cast<int32_t>(length - (tokens - 1 - i) * step));
  for (int i = 0; i < tokens; ++i) {
    for (int64_t page = 0; page < pages; ++page) numbers.push_back(static_cast<int32_t>(page));
  }
  const auto storage = std::make_shared<const std::vector<int32_t>>(std::move(numbers));
  const int32_t* data = storage->data();
  CalibrationSample sample;
  sample.name = fmt::format("decode at {}", length);
  sample.context_length = length;
  for (const CalibrationInput& input : capture) {
    AttentionArgs args = inputs_only(input.args);
    args.query = slice(args.query, length - 1 - (tokens - 1) * step, length);
    args.query.shape[0] = tokens;
    args.query.stride[0] *= step;
    args.key = as_pages(args.key, pages);
    args.value = as_pages(args.value, pages);
    args.cu_seqlens_kv = {};
    args.cu_seqlens_q = TensorView::of(data, DType::i32, {tokens + 1});
    args.kv_lengths = TensorView::of(data + tokens + 1, DType::i32, {tokens});
    args.page_table = TensorView::of(data + 2 * tokens + 1, DType::i32, {tokens, pages});
    sample.layers.push_back({input.layer, args, storage});
  }
  return sample;
}

std::vector<CalibrationSample> samples_of_capture(std::span<const CalibrationInput> capture, Phase phase,
                                                  const std::string& name) {
  const int64_t length = capture_length(capture);
  std::vector<CalibrationSample> samples;
  const auto add = [&](int64_t part, bool held_out) {
    samples.push_back(phase == Phase::prefill ? prefill_sample(capture, 0, part) : decode_sample(capture, part));
    samples.back().name = fmt::format("{}, {}", name, samples.back().name);
    samples.back().held_out = held_out;
  };
  add(length, false);
  add(std::max<int64_t>(length / 2, 1), false);
  add(std::max<int64_t>(length / 4, 1), false);
  add(std::max<int64_t>(length * 3 / 4, 1), true);
  add(std::max<int64_t>(length * 3 / 8, 1), true);
  return samples;
}

}  // namespace longhaul
