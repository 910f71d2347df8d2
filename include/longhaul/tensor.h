// A view of memory that somebody else owns. Const members are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "longhaul/dtype.h"
#include "longhaul/export.h"

namespace longhaul {

/// Numeric values are part of the C ABI (longhaul.h) and never change.
enum class Device : int32_t { cpu = 0, cuda = 1 };

/// Data, dtype, shape, strides (in elements) and device. A plain struct: copying it copies no data.
/// A default-constructed view (rank 0) means "not given". Strides may be 0 or of any order; none may be negative.
struct LONGHAUL_API TensorView {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  Device device = Device::cpu;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  TensorView() = default;
  /// Row-major (last dimension contiguous).
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape, Device device = Device::cpu);
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride,
             Device device = Device::cpu);
  /// Row-major view of memory that will only be read.
  static TensorView of(const void* data, DType dtype, std::initializer_list<int64_t> shape);

  bool given() const { return rank > 0; }
  int64_t size() const;  ///< Number of elements (0 if any dimension is 0).
  bool is_contiguous() const;

  /// Throws InvalidArgument naming `name` unless the view is consistent: rank within kMaxRank, dimensions and strides
  /// not negative, the addressed span within the address space, data present when there are elements.
  void check(const std::string& name) const;

  /// "bfloat16[8, 128]" for messages.
  std::string describe() const;
};

}  // namespace longhaul
