#include "cli/attention_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

void swap_dimensions(TensorView& view, int a, int b) {
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.stride[a], view.stride[b]);
}

// Where the file holds layers and the prefix names none of them, say how to choose one.
void check_prefix(const SafetensorsFile& file, const std::string& prefix) {
  const std::vector<int> layers = layers_in(file);
  if (layers.empty() || file.find(prefix + "query").given()) return;
  throw InvalidArgument(
      fmt::format("'{}' has no tensor '{}query', but the layers {}: choose one with --prefix, as in 'layer.{}.'",
                  file.path(), prefix, fmt::join(layers, ", "), layers[0]));
}

// That of the layer which the prefix names, or of a file without layers.
float softmax_scale_of(const SafetensorsFile& file, const std::string& prefix) {
  const std::vector<int> layers = layers_in(file);
  const std::vector<float> scales = softmax_scales(file, std::max<size_t>(1, layers.size()));
  for (size_t i = 0; i < layers.size(); ++i)
    if (prefix == fmt::format("layer.{}.", layers[i])) return scales[i];
  return layers.empty() ? scales[0] : 0.0F;
}

}  // namespace

AttentionInputs::AttentionInputs(const std::string& path, const InputOptions& options) : file_(path) {
  check_prefix(file_, options.prefix);
  args_ = read_tensors(file_, options.prefix);
  if (args_.softmax_scale == 0 && file_.metadata().contains("softmax_scale"))
    notes_.push_back(
        fmt::format("the softmax_scale in the file's metadata is that of its layers, not of '{}query', so "
                    "it is not used",
                    options.prefix));
  for (const auto& [name, view] :
       {std::pair{"query", &args_.query}, std::pair{"key", &args_.key}, std::pair{"value", &args_.value}}) {
    const bool query = view == &args_.query;
    if (view->rank != 3 && (query || view->rank != 4))
      throw InvalidArgument(
          fmt::format("'{}' in '{}' is {}, but it must have {}", options.prefix + name, path, view->describe(),
                      query ? "3 dimensions: tokens, heads, head size"
                            : "3 dimensions (tokens, heads, head size) or 4 (pages, page size, heads, head size)"));
    const bool heads_first = query ? options.query_heads_first : options.kv_heads_first;
    if (heads_first) swap_dimensions(*view, view->rank - 3, view->rank - 2);
  }
  set_lengths(options);
}

// Lengths and page tables may be int32 or int64 in the file, as frameworks like to write them.
TensorView AttentionInputs::int32_tensor(const std::string& name, const InputOptions& options) {
  const TensorView view = file_.find(options.prefix + name);
  if (!view.given() || view.dtype != DType::i64) return view;
  const auto* wide = static_cast<const int64_t*>(view.data);
  std::vector<int32_t> narrow;
  for (int64_t i = 0; i < view.size(); ++i) {
    if (wide[i] < 0 || wide[i] > std::numeric_limits<int32_t>::max())
      throw InvalidArgument(fmt::format("'{}' in '{}' holds {}, but it must hold numbers from 0 to 2^31 - 1", name,
                                        file_.path(), wide[i]));
    narrow.push_back(static_cast<int32_t>(wide[i]));
  }
  storage_.push_back(std::move(narrow));
  TensorView result = view;
  result.data = storage_.back().data();
  result.dtype = DType::i32;
  return result;
}

void AttentionInputs::set_lengths(const InputOptions& options) {
  args_.cu_seqlens_q = int32_tensor("cu_seqlens_q", options);
  args_.cu_seqlens_kv = int32_tensor("cu_seqlens_kv", options);
  args_.page_table = int32_tensor("page_table", options);
  args_.kv_lengths = int32_tensor("kv_lengths", options);
  const auto own = [this](std::vector<int32_t> values) {
    storage_.push_back(std::move(values));
    return TensorView(storage_.back().data(), DType::i32, {static_cast<int64_t>(storage_.back().size())});
  };
  if (!args_.cu_seqlens_q.given()) {
    args_.cu_seqlens_q = own({0, static_cast<int32_t>(args_.query.shape[0])});
    notes_.push_back("the file has no cu_seqlens_q, so all query tokens are taken as one request");
  }
  if (args_.key.rank == 3 && !args_.cu_seqlens_kv.given()) {
    args_.cu_seqlens_kv = own({0, static_cast<int32_t>(args_.key.shape[0])});
    notes_.push_back("the file has no cu_seqlens_kv, so all keys are taken as one request");
  }
  if (args_.key.rank == 4 && !args_.page_table.given() && !args_.kv_lengths.given()) {
    std::vector<int32_t> pages(static_cast<size_t>(args_.key.shape[0]));
    std::iota(pages.begin(), pages.end(), 0);
    args_.kv_lengths = own({static_cast<int32_t>(args_.key.shape[0] * args_.key.shape[1])});
    args_.page_table = own(std::move(pages));
    args_.page_table = TensorView(args_.page_table.data, DType::i32, {1, args_.key.shape[0]});
    notes_.push_back(
        "the file has neither page_table nor kv_lengths, so its pages are taken as one request, in order and full");
  }
}

std::vector<float> softmax_scales(const SafetensorsFile& file, size_t layers) {
  const auto entry = file.metadata().find("softmax_scale");
  if (entry == file.metadata().end()) return std::vector<float>(layers, 0.0F);
  std::vector<float> scales;
  const char* at = entry->second.data();
  const char* const end = at + entry->second.size();
  while (at != end) {
    float scale = 0;
    const auto [next, error] = std::from_chars(at, end, scale);
    if (error != std::errc() || (next != end && *next != ',') || !(scale > 0)) break;
    scales.push_back(scale);
    at = next == end ? end : next + 1;
  }
  if (at != end || scales.size() != layers)
    throw InvalidArgument(fmt::format(
        "'{}' has the softmax_scale '{}' in its metadata, but it must list one number for each of its {} layers",
        file.path(), entry->second, layers));
  return scales;
}

AttentionArgs read_tensors(const SafetensorsFile& file, const std::string& prefix) {
  AttentionArgs args;
  args.query = file.get(prefix + "query");
  args.key = file.get(prefix + "key");
  args.value = file.get(prefix + "value");
  args.sinks = file.find(prefix + "sinks");
  args.query_scale = file.find(prefix + "query_scale");
  args.key_scale = file.find(prefix + "key_scale");
  args.value_scale = file.find(prefix + "value_scale");
  if (const TensorView lambda = file.find(prefix + "lambda"); lambda.given()) args.lambda = Lambda::per_head(lambda);
  args.softmax_scale = softmax_scale_of(file, prefix);
  return args;
}

std::vector<int> layers_in(const SafetensorsFile& file) {
  constexpr std::string_view kHead = "layer.", kTail = ".query";
  std::vector<int> layers;
  for (const NamedTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    if (!name.starts_with(kHead) || !name.ends_with(kTail) || name.size() <= kHead.size() + kTail.size()) continue;
    const std::string_view digits = name.substr(kHead.size(), name.size() - kHead.size() - kTail.size());
    int layer = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
    if (error == std::errc() && end == digits.data() + digits.size()) layers.push_back(layer);
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

}  // namespace longhaul::cli
