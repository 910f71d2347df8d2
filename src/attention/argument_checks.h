// Checks that the arguments of a call share; each throws one sentence naming the argument, its value and what is
// allowed.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "longhaul/error.h"
#include "longhaul/tensor.h"

namespace longhaul::checks {

// Callers test first and format only on failure: a call that is in order must not allocate.
template <class E = InvalidArgument, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

inline bool is_wide_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

inline void check_required(const TensorView& view, const char* name) {
  if (!view.given()) fail("{} is not given, but it is required", name);
  view.check(name);
}

inline bool has_shape(const TensorView& view, DType dtype, std::initializer_list<int64_t> shape) {
  return view.dtype == dtype && view.rank == static_cast<int>(shape.size()) &&
         std::equal(shape.begin(), shape.end(), view.shape.begin());
}

inline void check_last_contiguous(const TensorView& view, const char* name) {
  const int last = view.rank - 1;
  if (view.shape[last] > 1 && view.stride[last] != 1)
    fail("{} has stride {} in its last dimension, which must be contiguous (stride 1)", name, view.stride[last]);
}

inline void check_contiguous(const TensorView& view, const char* name) {
  if (!view.is_contiguous()) fail("{} is {} with strides, but it must be contiguous", name, view.describe());
}

// Dimensions taken from the smallest stride upwards: each must step over all that the smaller ones span.
inline void check_no_alias(const TensorView& view, const char* name) {
  if (view.size() == 0) return;
  int64_t span = 1;
  std::array<bool, TensorView::kMaxRank> done{};
  for (int i = 0; i < view.rank; ++i) {
    int dim = -1;
    for (int j = 0; j < view.rank; ++j)
      if (!done[j] && (dim < 0 || view.stride[j] < view.stride[dim])) dim = j;
    done[dim] = true;
    if (view.shape[dim] <= 1) continue;
    if (view.stride[dim] < span)
      fail("{} has stride {} in dimension {}, so its elements overlap, but results need memory of their own", name,
           view.stride[dim], dim);
    span += (view.shape[dim] - 1) * view.stride[dim];
  }
}

inline void refuse_given(const TensorView& view, const char* name, const char* reason) {
  if (view.given()) fail("{} is given ({}), but {}", name, view.describe(), reason);
}

}  // namespace longhaul::checks
