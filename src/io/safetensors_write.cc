#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "io/safetensors_format.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using nlohmann::ordered_json;

void check_tensors(std::span<const NamedTensor> tensors) {
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__") {
      throw InvalidArgument(fmt::format("a tensor may not have the name '{}' in a safetensors file", tensor.name));
    }
    if (!names.insert(tensor.name).second) {
      throw InvalidArgument(fmt::format("the tensor name '{}' is given twice", tensor.name));
    }
    tensor.view.check(tensor.name);
    if (!tensor.view.given()) throw InvalidArgument(fmt::format("tensor '{}' is not given (rank 0)", tensor.name));
    if (tensor.view.device != Device::cpu) {
      throw InvalidArgument(fmt::format("tensor '{}' must be in host memory to be written", tensor.name));
    }
  }
}

// Larger elements first: then every tensor starts at a multiple of its element size without holes.
std::vector<const NamedTensor*> data_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return dtype_size(a->view.dtype) > dtype_size(b->view.dtype);
  });
  return order;
}

uint64_t byte_size(const TensorView& view) { return static_cast<uint64_t>(view.size()) * dtype_size(view.dtype); }

std::string make_header(const std::vector<const NamedTensor*>& order, const SafetensorsMetadata& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const NamedTensor* tensor : order) {
    const TensorView& view = tensor->view;
    const std::vector<int64_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
    const uint64_t end = offset + byte_size(view);
    header[tensor->name] = {
        {"dtype", safetensors_dtype_name(view.dtype)}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const ordered_json::exception&) {
    throw InvalidArgument("a tensor name or metadata entry of a safetensors file is no valid UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// Writes a strided view row-major, one innermost row at a time.
void write_strided(AtomicFile& file, const TensorView& view) {
  const size_t element = dtype_size(view.dtype);
  const int last = view.rank - 1;
  const int64_t row = view.shape[last];
  std::vector<std::byte> buffer(static_cast<size_t>(row) * element);
  std::array<int64_t, TensorView::kMaxRank> index{};
  const int64_t rows = row == 0 ? 0 : view.size() / row;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t offset = 0;
    for (int i = 0; i < last; ++i) offset += index[i] * view.stride[i];
    for (int64_t c = 0; c < row; ++c) {
      const auto* from = static_cast<const std::byte*>(view.data) + (offset + c * view.stride[last]) * element;
      std::memcpy(buffer.data() + c * element, from, element);
    }
    file.write(buffer.data(), buffer.size());
    for (int i = last - 1; i >= 0 && ++index[i] == view.shape[i]; --i) index[i] = 0;
  }
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata) {
  check_tensors(tensors);
  const std::vector<const NamedTensor*> order = data_order(tensors);
  const std::string header = make_header(order, metadata);
  if (header.size() > kMaxSafetensorsHeader) {
    throw InvalidArgument(fmt::format("the safetensors header for '{}' would have {} bytes; the format allows {}", path,
                                      header.size(), kMaxSafetensorsHeader));
  }
  std::array<unsigned char, 8> length{};
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));

  AtomicFile file(path);
  file.write(length.data(), length.size());
  file.write(header.data(), header.size());
  for (const NamedTensor* tensor : order) {
    if (tensor->view.is_contiguous()) {
      file.write(tensor->view.data, byte_size(tensor->view));
    } else {
      write_strided(file, tensor->view);
    }
  }
  file.commit();
}

}  // namespace longhaul
