#include "cli/demo/activations.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "attention/params.h"
#include "cli/attention_inputs.h"
#include "io/safetensors.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

constexpr int64_t kPage = 64;

struct Layer {
  int number;
  float softmax_scale;
  TensorView query, key, value;
};

std::vector<Layer> layers_of(const std::vector<SafetensorsFile>& files, const std::string& path) {
  std::vector<Layer> layers;
  for (const SafetensorsFile& file : files) {
    const std::vector<int> numbers = layers_in(file);
    for (const int number : numbers) {
      const std::string prefix = fmt::format("layer.{}.", number);
      for (const char* name : {"sinks", "query_scale", "key_scale", "value_scale", "lambda"})
        if (file.find(prefix + name).given())
          throw Unsupported(fmt::format("'{}' has the tensor '{}{}', but the demo knows query, key and value alone",
                                        file.path(), prefix, name));
      const AttentionArgs args = read_tensors(file, prefix);
      layers.push_back({number, args.softmax_scale, args.query, args.key, args.value});
    }
  }
  std::sort(layers.begin(), layers.end(), [](const Layer& a, const Layer& b) { return a.number < b.number; });
  if (layers.empty()) throw InvalidArgument(fmt::format("'{}' holds no tensor named like layer.0.query", path));
  const auto same = [](const TensorView& a, const TensorView& b) {
    return a.dtype == b.dtype && a.rank == 3 && a.shape == b.shape;
  };
  for (const Layer& layer : layers)
    if (!same(layer.query, layers[0].query) || !same(layer.key, layers[0].key) || !same(layer.value, layers[0].value) ||
        layer.key.shape[0] != layer.query.shape[0] || layer.value.shape[0] != layer.query.shape[0] ||
        layer.softmax_scale != layers[0].softmax_scale)
      throw InvalidArgument(fmt::format(
          "layer {} of '{}' has query {}, key {}, value {}, but all layers must agree and have a key for each query",
          layer.number, path, layer.query.describe(), layer.key.describe(), layer.value.describe()));
  return layers;
}

// [tokens, heads, d] of each layer, side by side: [tokens, layers * heads, d].
TensorView side_by_side(const std::vector<Layer>& layers, TensorView Layer::* which, std::vector<std::byte>& memory) {
  const TensorView& first = layers[0].*which;
  const auto row = static_cast<size_t>(first.shape[1] * first.shape[2]) * dtype_size(first.dtype);
  memory.resize(row * layers.size() * static_cast<size_t>(first.shape[0]));
  std::byte* to = memory.data();
  for (int64_t t = 0; t < first.shape[0]; ++t)
    for (const Layer& layer : layers) {
      std::memcpy(to, static_cast<const std::byte*>((layer.*which).data) + static_cast<size_t>(t) * row, row);
      to += row;
    }
  return TensorView(memory.data(), first.dtype,
                    {first.shape[0], first.shape[1] * static_cast<int64_t>(layers.size()), first.shape[2]});
}

size_t token_bytes(const TensorView& view) { return static_cast<size_t>(view.stride[0]) * dtype_size(view.dtype); }

// Appends tokens [begin, end) of a row-major view.
void append_tokens(std::vector<std::byte>& memory, const TensorView& view, int64_t begin, int64_t end) {
  const auto* data = static_cast<const std::byte*>(view.data);
  const size_t token = token_bytes(view);
  memory.insert(memory.end(), data + token * static_cast<size_t>(begin), data + token * static_cast<size_t>(end));
}

TensorView view_of(std::vector<std::byte>& memory, const TensorView& like) {
  const auto tokens = static_cast<int64_t>(memory.size() / token_bytes(like));
  return TensorView(memory.data(), like.dtype, {tokens, like.shape[1], like.shape[2]});
}

TensorView view_of(std::vector<int32_t>& values) {
  return TensorView(values.data(), DType::i32, {static_cast<int64_t>(values.size())});
}

TensorView as_pages(const TensorView& view) {
  return TensorView(view.data, view.dtype, {view.shape[0] / kPage, kPage, view.shape[1], view.shape[2]});
}

}  // namespace

std::vector<std::string> activation_files(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  if (names.empty()) throw System(fmt::format("'{}' holds no .safetensors file", path));
  return names;
}

Activations::Activations(const std::string& path) : path_(path) {
  std::vector<SafetensorsFile> files;
  for (const std::string& name : activation_files(path)) files.emplace_back(name);
  const std::vector<Layer> layers = layers_of(files, path);
  for (const Layer& layer : layers) layers_.push_back(layer.number);
  for (const SafetensorsFile& file : files) metadata_.insert(file.metadata().begin(), file.metadata().end());
  args_.query = side_by_side(layers, &Layer::query, query_);
  args_.key = side_by_side(layers, &Layer::key, key_);
  args_.value = side_by_side(layers, &Layer::value, value_);
  args_.softmax_scale = layers[0].softmax_scale;
  lengths_ = {0, static_cast<int32_t>(tokens())};
  args_.cu_seqlens_q = args_.cu_seqlens_kv = view_of(lengths_);
  make_input_params(args_, Phase::prefill);  // checks the tensors before their heads are divided by each other
}

PrefillSample::PrefillSample(const AttentionArgs& all, int64_t tokens, int64_t groups, int64_t rows) : cu_q_{0} {
  if (tokens < groups * std::max(rows, kPage))
    throw InvalidArgument(fmt::format("the activations have {} tokens, but at least {} are needed", tokens,
                                      groups * std::max(rows, kPage)));
  // As many whole pages as there are; the last tokens of an odd length belong to no sample.
  const int64_t pages = tokens / kPage, stride = tokens / rows / groups;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = (g * stride + stride / 2) * rows;
    append_tokens(query_, all.query, begin, begin + rows);
    cu_q_.push_back(static_cast<int32_t>((g + 1) * rows));
    lengths_.push_back(static_cast<int32_t>(begin + rows));
    for (int64_t page = 0; page < pages; ++page) pages_.push_back(static_cast<int32_t>(page));
  }
  args_.softmax_scale = all.softmax_scale;
  args_.sinks = all.sinks;
  args_.query_scale = all.query_scale;
  args_.key_scale = all.key_scale;
  args_.value_scale = all.value_scale;
  args_.query = view_of(query_, all.query);
  args_.key = as_pages(all.key);
  args_.value = as_pages(all.value);
  args_.cu_seqlens_q = view_of(cu_q_);
  args_.kv_lengths = view_of(lengths_);
  args_.page_table = TensorView(pages_.data(), DType::i32, {groups, pages});
}

DecodeBatch::DecodeBatch(const AttentionArgs& all, int64_t requests) : cu_q_{0}, cu_kv_{0} {
  const int64_t tokens = all.query.shape[0];
  if (tokens < 2 * requests)
    throw InvalidArgument(
        fmt::format("the activations have {} tokens, but at least {} are needed", tokens, 2 * requests));
  for (int64_t r = 0; r < requests; ++r) {
    const int64_t position = tokens - 1 - (requests - 1 - r) * (tokens / 2) / requests;
    append_tokens(query_, all.query, position, position + 1);
    append_tokens(key_, all.key, 0, position + 1);
    append_tokens(value_, all.value, 0, position + 1);
    cu_q_.push_back(static_cast<int32_t>(r + 1));
    cu_kv_.push_back(cu_kv_.back() + static_cast<int32_t>(position + 1));
  }
  args_.softmax_scale = all.softmax_scale;
  args_.query = view_of(query_, all.query);
  args_.key = view_of(key_, all.key);
  args_.value = view_of(value_, all.value);
  args_.cu_seqlens_q = view_of(cu_q_);
  args_.cu_seqlens_kv = view_of(cu_kv_);
}

}  // namespace longhaul::cli
