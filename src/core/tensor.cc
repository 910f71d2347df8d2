#include "longhaul/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>

#include "longhaul/error.h"

namespace longhaul {
namespace {

std::array<int64_t, TensorView::kMaxRank> to_array(std::initializer_list<int64_t> list, std::string_view what) {
  if (list.size() > TensorView::kMaxRank) {
    throw InvalidArgument(
        fmt::format("{} has {} dimensions, but at most {} are allowed", what, list.size(), TensorView::kMaxRank));
  }
  std::array<int64_t, TensorView::kMaxRank> result{};
  std::copy(list.begin(), list.end(), result.begin());
  return result;
}

std::span<const int64_t> used(const std::array<int64_t, TensorView::kMaxRank>& values, int rank) {
  return std::span(values).first(static_cast<size_t>(std::clamp(rank, 0, TensorView::kMaxRank)));
}

}  // namespace

TensorView::TensorView(void* data_in, DType dtype_in, std::initializer_list<int64_t> shape_in, Device device_in)
    : data(data_in),
      dtype(dtype_in),
      device(device_in),
      rank(static_cast<int>(shape_in.size())),
      shape(to_array(shape_in, "the shape")) {
  uint64_t step = 1;  // unsigned: a product that overflows is reported by check(), not undefined here
  for (int i = rank - 1; i >= 0; --i) {
    stride[static_cast<size_t>(i)] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(shape[static_cast<size_t>(i)]);
  }
}

TensorView::TensorView(void* data_in, DType dtype_in, std::initializer_list<int64_t> shape_in,
                       std::initializer_list<int64_t> stride_in, Device device_in)
    : data(data_in),
      dtype(dtype_in),
      device(device_in),
      rank(static_cast<int>(shape_in.size())),
      shape(to_array(shape_in, "the shape")),
      stride(to_array(stride_in, "the strides")) {
  if (stride_in.size() != shape_in.size()) {
    throw InvalidArgument(fmt::format("the strides have {} dimensions, but the shape [{}] has {}", stride_in.size(),
                                      fmt::join(shape_in, ", "), shape_in.size()));
  }
}

TensorView TensorView::of(const void* data, DType dtype, std::initializer_list<int64_t> shape) {
  return {const_cast<void*>(data), dtype, shape};
}

int64_t TensorView::size() const {
  int64_t product = 1;
  bool overflow = false;
  for (const int64_t n : used(shape, rank)) {
    if (n == 0) {
      return 0;
    }
    overflow |= __builtin_mul_overflow(product, n, &product);
  }
  return overflow ? std::numeric_limits<int64_t>::max() : product;
}

bool TensorView::is_contiguous() const {
  if (size() == 0) {
    return true;
  }
  uint64_t step = 1;  // unsigned: a product that overflows is reported by check(), not undefined here
  for (int i = rank - 1; i >= 0; --i) {
    const auto axis = static_cast<size_t>(i);
    if (shape[axis] != 1 && static_cast<uint64_t>(stride[axis]) != step) {
      return false;
    }
    step *= static_cast<uint64_t>(shape[axis]);
  }
  return true;
}

void TensorView::check(const std::string& name) const {
  const auto require = [&](bool ok, auto&& message) {
    if (!ok) {
      throw InvalidArgument(message());
    }
  };
  require(rank >= 0 && rank <= kMaxRank,
          [&] { return fmt::format("{} has rank {}, but allowed are 0 to {}", name, rank, kMaxRank); });
  require(device == Device::cpu || device == Device::cuda, [&] {
    return fmt::format("{} has the device {}, but allowed are 0 (cpu) and 1 (cuda)", name, static_cast<int>(device));
  });
  require(static_cast<uint32_t>(dtype) <= static_cast<uint32_t>(DType::u8), [&] {
    return fmt::format("{} has the dtype {}, but allowed are 0 to {}", name, static_cast<int>(dtype),
                       static_cast<int>(DType::u8));
  });
  for (int i = 0; i < rank; ++i) {
    const int64_t n = shape[static_cast<size_t>(i)];
    require(n >= 0, [&] { return fmt::format("{} has the size {} in dimension {}, but it must be >= 0", name, n, i); });
  }
  int64_t last = 0;  // offset of the last element
  bool overflow = false;
  for (int i = 0; i < rank; ++i) {
    const int64_t n = shape[static_cast<size_t>(i)];
    const int64_t step = stride[static_cast<size_t>(i)];
    require(step >= 0,
            [&] { return fmt::format("{} has the stride {} in dimension {}, but it must be >= 0", name, step, i); });
    int64_t reach = 0;
    overflow |= __builtin_mul_overflow(std::max<int64_t>(n - 1, 0), step, &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
  }
  if (rank == 0 || size() == 0) {
    return;
  }
  const auto element = static_cast<int64_t>(dtype_size(dtype));
  int64_t bytes = 0;
  overflow |= __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element, &bytes);
  overflow |= size() == std::numeric_limits<int64_t>::max();
  uintptr_t end = 0;
  overflow |= __builtin_add_overflow(reinterpret_cast<uintptr_t>(data), static_cast<uint64_t>(bytes), &end);
  require(!overflow, [&] {
    return fmt::format("{} is {} with strides [{}], which spans more than the address space", name, describe(),
                       fmt::join(used(stride, rank), ", "));
  });
  require(data != nullptr, [&] { return fmt::format("{} is {}, but its data pointer is null", name, describe()); });
  require(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element) == 0, [&] {
    return fmt::format("{} is {} at the address {}, which must be a multiple of {} bytes", name, describe(), data,
                       element);
  });
}

std::string TensorView::describe() const {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(used(shape, rank), ", "));
}

}  // namespace longhaul
