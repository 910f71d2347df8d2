// Arrays of one floating-point dtype to another. Widening is exact, so going through float rounds once.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "capi/status.h"
#include "longhaul/dtype.h"

namespace longhaul::capi {
namespace {

constexpr size_t kChunk = 1024;  // 4 KiB of floats between the two steps: stays in the first-level cache

template <class T, class Widen>
void widen(const void* source, size_t begin, size_t count, float* out, Widen one) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(source) + (begin + i) * sizeof(T), sizeof(T));
    out[i] = one(value);
  }
}

template <class T, class Narrow>
void narrow(const float* values, size_t begin, size_t count, void* target, Narrow one) {
  for (size_t i = 0; i < count; ++i) {
    const T value = one(values[i]);
    std::memcpy(static_cast<char*>(target) + (begin + i) * sizeof(T), &value, sizeof(T));
  }
}

void widen_chunk(const void* source, DType dtype, size_t begin, size_t count, float* out) {
  switch (dtype) {
    case DType::f16:
      return widen<uint16_t>(source, begin, count, out, f16_to_float);
    case DType::bf16:
      return widen<uint16_t>(source, begin, count, out, bf16_to_float);
    case DType::f8e4m3:
      return widen<uint8_t>(source, begin, count, out, f8e4m3_to_float);
    default:
      return widen<float>(source, begin, count, out, [](float value) { return value; });
  }
}

void narrow_chunk(const float* values, void* target, DType dtype, size_t begin, size_t count) {
  switch (dtype) {
    case DType::f16:
      return narrow<uint16_t>(values, begin, count, target, f16_from_float);
    case DType::bf16:
      return narrow<uint16_t>(values, begin, count, target, bf16_from_float);
    case DType::f8e4m3:
      return narrow<uint8_t>(values, begin, count, target, f8e4m3_from_float);
    default:
      return narrow<float>(values, begin, count, target, [](float value) { return value; });
  }
}

DType to_floating(lh_dtype value, const char* name) {
  const auto dtype = static_cast<DType>(value);
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f8e4m3) {
    throw InvalidArgument(
        fmt::format("{} is {}, but allowed are {} (float32), {} (float16), {} (bfloat16) and {} (float8_e4m3)", name,
                    value, LH_FLOAT32 + 0, LH_FLOAT16 + 0, LH_BFLOAT16 + 0, LH_FLOAT8_E4M3 + 0));
  }
  return dtype;
}

void convert(const void* source, lh_dtype source_dtype, void* target, lh_dtype target_dtype, size_t count) {
  const DType from = to_floating(source_dtype, "source_dtype");
  const DType to = to_floating(target_dtype, "target_dtype");
  if (count == 0) {
    return;
  }
  require_pointer(source, "source");
  require_pointer(target, "target");
  const size_t element = std::max(dtype_size(from), dtype_size(to));
  if (const size_t most = PTRDIFF_MAX / element; count > most) {
    throw InvalidArgument(fmt::format("count is {}, but it must be at most {}: no array is larger", count, most));
  }
  std::array<float, kChunk> values;
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t n = std::min(kChunk, count - begin);
    widen_chunk(source, from, begin, n, values.data());
    narrow_chunk(values.data(), target, to, begin, n);
  }
}

}  // namespace
}  // namespace longhaul::capi

extern "C" lh_status lh_convert(const void* source, lh_dtype source_dtype, void* target, lh_dtype target_dtype,
                                size_t count) noexcept {
  return longhaul::capi::guarded([&] { longhaul::capi::convert(source, source_dtype, target, target_dtype, count); });
}
