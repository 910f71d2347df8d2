#include <algorithm>

#include "attention/testing/attention_case.h"

namespace longhaul::conformance {
namespace {

constexpr uint8_t kGuard = 0xa5;

int64_t offset_of(const TensorView& view, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * view.stride[i];
  return offset;
}

// Calls visit(byte offset) for every element.
template <class Visit>
void for_each_element(const TensorView& view, const Visit& visit) {
  std::vector<int64_t> index(view.rank, 0);
  if (view.size() == 0) return;
  for (;;) {
    visit(offset_of(view, index) * static_cast<int64_t>(dtype_size(view.dtype)));
    int dim = view.rank - 1;
    while (dim >= 0 && ++index[dim] == view.shape[dim]) index[dim--] = 0;
    if (dim < 0) return;
  }
}

}  // namespace

GuardedTensor::GuardedTensor(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> stride) {
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) last += std::max<int64_t>(shape[i] - 1, 0) * stride[i];
  bytes_.assign((last + 1) * dtype_size(dtype), kGuard);
  owned_.assign(bytes_.size(), 0);
  view_.data = bytes_.data();
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view_.shape.begin());
  std::copy(stride.begin(), stride.end(), view_.stride.begin());
  for_each_element(view_, [&](int64_t byte) { std::fill_n(&owned_[byte], dtype_size(dtype), uint8_t{1}); });
}

void GuardedTensor::fill_zero() {
  for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = owned_[i] != 0 ? 0 : kGuard;
}

bool GuardedTensor::guards_intact() const {
  for (size_t i = 0; i < bytes_.size(); ++i)
    if (owned_[i] == 0 && bytes_[i] != kGuard) return false;
  return true;
}

std::vector<uint8_t> GuardedTensor::elements() const {
  std::vector<uint8_t> result;
  for_each_element(view_, [&](int64_t byte) {
    result.insert(result.end(), &bytes_[byte], &bytes_[byte] + dtype_size(view_.dtype));
  });
  return result;
}

double GuardedTensor::at(const std::vector<int64_t>& index) const {
  const int64_t offset = offset_of(view_, index);
  switch (view_.dtype) {
    case DType::i64:
      return static_cast<double>(static_cast<const int64_t*>(view_.data)[offset]);
    case DType::u8:
      return static_cast<const uint8_t*>(view_.data)[offset];
    default:
      return load_as_float(view_.data, view_.dtype, offset);
  }
}

}  // namespace longhaul::conformance
