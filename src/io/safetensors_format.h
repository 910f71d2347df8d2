// The dtype names of the safetensors format.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "longhaul/dtype.h"

namespace longhaul {

inline constexpr std::array<std::pair<std::string_view, DType>, 7> kSafetensorsDTypes{{
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"F8_E4M3", DType::f8e4m3},
    {"I32", DType::i32},
    {"I64", DType::i64},
    {"U8", DType::u8},
}};
inline constexpr std::string_view kSafetensorsDTypeNames = "F32, F16, BF16, F8_E4M3, I32, I64 and U8";

inline std::optional<DType> dtype_from_safetensors(std::string_view text) {
  for (const auto& [name, dtype] : kSafetensorsDTypes) {
    if (name == text) return dtype;
  }
  return std::nullopt;
}

inline std::string_view safetensors_dtype_name(DType dtype) {
  for (const auto& [name, candidate] : kSafetensorsDTypes) {
    if (candidate == dtype) return name;
  }
  return {};
}

}  // namespace longhaul
