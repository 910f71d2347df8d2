#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "io/printable.h"
#include "io/safetensors.h"
#include "io/safetensors_format.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxDepth = 3;  // header object > tensor object > shape array

[[noreturn]] void fail(std::string_view source, const std::string& what) {
  throw InvalidArgument(fmt::format("safetensors file '{}': {}", source, what));
}

uint64_t read_header_length(std::span<const std::byte> bytes, std::string_view source) {
  if (bytes.size() < 8) fail(source, fmt::format("{} bytes are too few for the 8-byte header length", bytes.size()));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<uint64_t>(bytes[i]);
  if (length > kMaxSafetensorsHeader) {
    fail(source, fmt::format("the header length {} exceeds the format's limit of {}", length, kMaxSafetensorsHeader));
  }
  if (length > bytes.size() - 8) {
    fail(source, fmt::format("the header length {} exceeds the {} bytes that follow it (truncated file?)", length,
                             bytes.size() - 8));
  }
  return length;
}

// Parses with duplicate keys and deep nesting refused, which the JSON library would accept.
ordered_json parse_header(std::string_view text, std::string_view source) {
  if (text.empty() || text.front() != '{') fail(source, "the header does not start with '{'");
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, ordered_json::parse_event_t event, ordered_json& parsed) {
    using Event = ordered_json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kMaxDepth) fail(source, fmt::format("the header nests deeper than {} levels", kMaxDepth));
      if (event == Event::object_start) keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      fail(source, fmt::format("the header names '{}' twice", printable(parsed.get<std::string>())));
    }
    return true;
  };
  try {
    return ordered_json::parse(text.begin(), text.end(), check);
  } catch (const ordered_json::parse_error& error) {
    fail(source, fmt::format("the header is no valid JSON at byte {}", 8 + error.byte));
  } catch (const ordered_json::exception& error) {
    fail(source, fmt::format("the header is no valid JSON ({})", error.what()));
  }
}

SafetensorsMetadata read_metadata(const ordered_json& json, std::string_view source) {
  if (!json.is_object()) fail(source, "__metadata__ is no object of strings");
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) fail(source, fmt::format("__metadata__ entry '{}' is no string", printable(key)));
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

struct Span {
  std::string name;
  uint64_t begin = 0, end = 0;
};

class EntryReader {
 public:
  EntryReader(const std::string& name, const ordered_json& json, std::string_view source)
      : name_(name), json_(json), source_(source) {
    if (!json.is_object()) reject("is described by no object");
    for (const auto& [key, value] : json.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        reject(fmt::format("has the key '{}'; allowed are dtype, shape and data_offsets", printable(key)));
      }
    }
  }

  // The view's data is its offset into the data section until the caller adds the base.
  std::pair<TensorView, Span> read(uint64_t data_size) const {
    TensorView view;
    view.dtype = dtype();
    const std::vector<uint64_t> shape = numbers("shape");
    if (shape.empty() || shape.size() > TensorView::kMaxRank) {
      throw Unsupported(fmt::format("safetensors file '{}': tensor '{}' has rank {}; supported are 1 to {}", source_,
                                    printable(name_), shape.size(), TensorView::kMaxRank));
    }
    view.rank = static_cast<int>(shape.size());
    const uint64_t bytes = fill_shape(shape, view);
    const std::vector<uint64_t> offsets = numbers("data_offsets");
    if (offsets.size() != 2) reject(fmt::format("has {} data_offsets instead of 2", offsets.size()));
    const Span span{name_, offsets[0], offsets[1]};
    if (span.begin > span.end || span.end > data_size) {
      reject(fmt::format("has data_offsets [{}, {}], which do not lie within the {} bytes of data (truncated file?)",
                         span.begin, span.end, data_size));
    }
    if (span.end - span.begin != bytes) {
      reject(fmt::format("has {} bytes of data, but {} needs {}", span.end - span.begin, view.describe(), bytes));
    }
    return {view, span};
  }

  [[noreturn]] void reject(const std::string& what) const {
    fail(source_, fmt::format("tensor '{}' {}", printable(name_), what));
  }

 private:
  const ordered_json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) reject(fmt::format("has no {}", key));
    return *found;
  }

  DType dtype() const {
    const ordered_json& json = at("dtype");
    if (!json.is_string()) reject("has a dtype that is no string");
    const auto text = json.get<std::string>();
    if (const std::optional<DType> dtype = dtype_from_safetensors(text)) return *dtype;
    throw Unsupported(fmt::format("safetensors file '{}': tensor '{}' has dtype {}; supported are {}", source_,
                                  printable(name_), printable(text), kSafetensorsDTypeNames));
  }

  std::vector<uint64_t> numbers(const char* key) const {
    const ordered_json& json = at(key);
    if (!json.is_array()) reject(fmt::format("has a {} that is no array", key));
    std::vector<uint64_t> values;
    for (const ordered_json& item : json) {
      if (!item.is_number_unsigned()) reject(fmt::format("has a {} with an entry that is no integer >= 0", key));
      values.push_back(item.get<uint64_t>());
    }
    return values;
  }

  // Fills shape and row-major strides; returns the bytes.
  uint64_t fill_shape(const std::vector<uint64_t>& shape, TensorView& view) const {
    uint64_t elements = 1;
    for (int i = view.rank - 1; i >= 0; --i) {
      uint64_t next = 0;
      if (shape[i] > INT64_MAX || __builtin_mul_overflow(elements, shape[i], &next) || next > INT64_MAX / 8) {
        reject(fmt::format("has the shape [{}], whose size overflows", fmt::join(shape, ", ")));
      }
      view.shape[i] = static_cast<int64_t>(shape[i]);
      view.stride[i] = static_cast<int64_t>(elements);
      elements = next;
    }
    return elements * dtype_size(view.dtype);
  }

  const std::string& name_;
  const ordered_json& json_;
  std::string_view source_;
};

// The data section must be covered exactly: no overlap, no hole, nothing behind the last tensor.
void check_coverage(std::vector<Span> spans, uint64_t data_size, std::string_view source) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t covered = 0;
  for (const Span& span : spans) {
    if (span.begin < covered)
      fail(source, fmt::format("tensor '{}' overlaps the data of another", printable(span.name)));
    if (span.begin > covered) {
      fail(source, fmt::format("bytes {} to {} of the data belong to no tensor", covered, span.begin));
    }
    covered = span.end;
  }
  if (covered != data_size) fail(source, fmt::format("{} bytes follow the last tensor", data_size - covered));
}

}  // namespace

SafetensorsContents parse_safetensors(std::span<const std::byte> bytes, std::string_view source) {
  const uint64_t header_length = read_header_length(bytes, source);
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  const ordered_json header = parse_header({text, header_length}, source);
  const std::byte* data = bytes.data() + 8 + header_length;
  const uint64_t data_size = bytes.size() - 8 - header_length;

  SafetensorsContents contents;
  std::vector<Span> spans;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      contents.metadata = read_metadata(json, source);
      continue;
    }
    if (name.empty()) fail(source, "a tensor has an empty name");
    const EntryReader entry(name, json, source);
    auto [view, span] = entry.read(data_size);
    const uint64_t position = 8 + header_length + span.begin;
    if (position % dtype_size(view.dtype) != 0) {
      entry.reject(
          fmt::format("starts at byte {}, which is no multiple of its element size {} (pad the header with spaces)",
                      position, dtype_size(view.dtype)));
    }
    view.data = const_cast<std::byte*>(data + span.begin);
    contents.tensors.push_back({name, view});
    spans.push_back(std::move(span));
  }
  check_coverage(std::move(spans), data_size, source);
  return contents;
}

}  // namespace longhaul
