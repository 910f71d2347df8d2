// Element types and their correctly rounded conversions (to nearest, ties to even). All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "longhaul/export.h"

namespace longhaul {

/// Numeric values are part of the C ABI (longhaul.h) and never change.
enum class DType : int32_t {
  f32 = 0,
  f16 = 1,     ///< IEEE binary16
  bf16 = 2,    ///< the upper half of an f32
  f8e4m3 = 3,  ///< OCP e4m3 "fn": no infinities, NaN = 0x7f/0xff, largest finite value 448
  i32 = 4,
  i64 = 5,
  u8 = 6,
};

/// Bytes of one element.
LONGHAUL_API size_t dtype_size(DType dtype);

/// "float32", "float16", "bfloat16", "float8_e4m3", "int32", "int64", "uint8".
LONGHAUL_API std::string_view dtype_name(DType dtype);

/// The inverse of dtype_name; throws InvalidArgument naming the text and the allowed names.
LONGHAUL_API DType dtype_from_name(std::string_view name);

/// Bits of the nearest value; NaN stays NaN (quiet), overflow gives infinity.
LONGHAUL_API uint16_t bf16_from_float(float value);
LONGHAUL_API float bf16_to_float(uint16_t bits);
LONGHAUL_API uint16_t f16_from_float(float value);
LONGHAUL_API float f16_to_float(uint16_t bits);

/// Bits of the nearest value; |value| above 448 saturates to ±448 (infinity too), NaN stays NaN.
LONGHAUL_API uint8_t f8e4m3_from_float(float value);
LONGHAUL_API float f8e4m3_to_float(uint8_t bits);

/// One element of a floating-point dtype, read from or written to memory. Throws InvalidArgument on an integer dtype.
LONGHAUL_API float load_as_float(const void* data, DType dtype, int64_t index);
LONGHAUL_API void store_from_float(void* data, DType dtype, int64_t index, float value);

}  // namespace longhaul
