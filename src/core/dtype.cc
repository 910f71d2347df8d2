#include "longhaul/dtype.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "longhaul/error.h"

namespace longhaul {
namespace {

struct DTypeInfo {
  std::string_view name;
  size_t size;
};
constexpr std::array<DTypeInfo, 7> kInfos{
    {{"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"float8_e4m3", 1}, {"int32", 4}, {"int64", 8}, {"uint8", 1}}};

const DTypeInfo& info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= kInfos.size()) {
    throw InvalidArgument(
        fmt::format("dtype has the value {}, but allowed are 0 to {}", static_cast<int32_t>(dtype), kInfos.size() - 1));
  }
  return kInfos[index];
}

constexpr uint32_t kFloatInfinity = 0x7f800000;
constexpr int kFloatMantissaBits = 23;
constexpr int kFloatBias = 127;

/// value / 2^shift, rounded to nearest with ties to even; shift in [1, 31].
constexpr uint32_t shift_right_rounded(uint32_t value, int shift) {
  const uint32_t kept = value >> shift;
  const uint32_t rest = value & ((1U << shift) - 1);
  const uint32_t half = 1U << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}

/// An IEEE-like format of a sign, an exponent and a mantissa; the exponent 0 holds the subnormals.
template <int kExponentBits, int kMantissaBits>
struct Narrow {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = kFloatMantissaBits - kMantissaBits;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(kFloatBias - kBias) << kFloatMantissaBits;
  static constexpr uint32_t kSmallestNormal = kRebias + (1U << kFloatMantissaBits);  // as float bits

  /// Bits of the nearest value for the float bits `magnitude` (sign cleared, finite); the exponent is not bounded
  /// above.
  static constexpr uint32_t encode(uint32_t magnitude) {
    if (magnitude >= kSmallestNormal) {
      return shift_right_rounded(magnitude - kRebias, kShift);  // a carry out of the mantissa raises the exponent
    }
    const int exponent = static_cast<int>(magnitude >> kFloatMantissaBits);
    const int shift = kShift + (kFloatBias - kBias + 1) - exponent;
    if (shift > kFloatMantissaBits + 1) {
      return 0;  // below half of the smallest subnormal; also all subnormal floats
    }
    return shift_right_rounded((magnitude & ((1U << kFloatMantissaBits) - 1)) | (1U << kFloatMantissaBits), shift);
  }

  /// Float bits of a finite value (sign cleared).
  static constexpr uint32_t decode(uint32_t bits) {
    if (bits >= (1U << kMantissaBits)) {
      return (bits << kShift) + kRebias;
    }
    if (bits == 0) {
      return 0;
    }
    const int leading = std::bit_width(bits) - 1;  // the value is 1.xxx * 2^(leading + 1 - kBias - kMantissaBits)
    const auto exponent = static_cast<uint32_t>(leading + 1 - kBias - kMantissaBits + kFloatBias);
    const uint32_t mantissa = (bits << (kFloatMantissaBits - leading)) & ((1U << kFloatMantissaBits) - 1);
    return (exponent << kFloatMantissaBits) | mantissa;
  }
};
using Half = Narrow<5, 10>;
using E4M3 = Narrow<4, 3>;

constexpr uint32_t kHalfOverflow = 0x477ff000;  // 65520, halfway between the largest half and the next power of two
constexpr uint32_t kE4M3Largest = 0x43e00000;   // 448
constexpr uint32_t kE4M3LargestBits = 0x7e;

template <class T>
T load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(void* data, int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

[[noreturn]] void throw_not_floating(DType dtype) {
  throw InvalidArgument(fmt::format(
      "dtype is {}, but only float32, float16, bfloat16 and float8_e4m3 convert to and from float", dtype_name(dtype)));
}

}  // namespace

size_t dtype_size(DType dtype) { return info(dtype).size; }

std::string_view dtype_name(DType dtype) { return info(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].name == name) {
      return static_cast<DType>(i);
    }
  }
  throw InvalidArgument(fmt::format(
      "dtype is '{}', but allowed are float32, float16, bfloat16, float8_e4m3, int32, int64 and uint8", name));
}

uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > kFloatInfinity) {
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  }
  return static_cast<uint16_t>(shift_right_rounded(bits, 16));
}

float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kFloatInfinity) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= kHalfOverflow) {
    return static_cast<uint16_t>(sign | 0x7c00);
  }
  return static_cast<uint16_t>(sign | Half::encode(magnitude));
}

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) {
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;  // as the conversion instructions do
    return std::bit_cast<float>(sign | kFloatInfinity | quiet | ((magnitude & 0x3ff) << 13));
  }
  return std::bit_cast<float>(sign | Half::decode(magnitude));
}

uint8_t f8e4m3_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kFloatInfinity) {
    return static_cast<uint8_t>(sign | 0x7f);
  }
  return static_cast<uint8_t>(sign | (magnitude >= kE4M3Largest ? kE4M3LargestBits : E4M3::encode(magnitude)));
}

float f8e4m3_to_float(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
  const uint32_t magnitude = bits & 0x7f;
  return std::bit_cast<float>(sign | (magnitude == 0x7f ? 0x7fc00000 : E4M3::decode(magnitude)));
}

float load_as_float(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::f32:
      return load<float>(data, index);
    case DType::f16:
      return f16_to_float(load<uint16_t>(data, index));
    case DType::bf16:
      return bf16_to_float(load<uint16_t>(data, index));
    case DType::f8e4m3:
      return f8e4m3_to_float(load<uint8_t>(data, index));
    default:
      throw_not_floating(dtype);
  }
}

void store_from_float(void* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::f32:
      return store(data, index, value);
    case DType::f16:
      return store(data, index, f16_from_float(value));
    case DType::bf16:
      return store(data, index, bf16_from_float(value));
    case DType::f8e4m3:
      return store(data, index, f8e4m3_from_float(value));
    default:
      throw_not_floating(dtype);
  }
}

}  // namespace longhaul
