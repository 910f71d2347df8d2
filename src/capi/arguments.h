// From the C structures to the C++ ones.
#pragma once

#include <cstddef>
#include <cstring>

#include "longhaul/attention.h"
#include "longhaul/longhaul.h"

namespace longhaul::capi {

// Sizes in the first version of the header.
inline constexpr size_t kOldestAttentionArgs = offsetof(lh_attention_args, stream) + sizeof(void*);
inline constexpr size_t kOldestReferenceArgs = offsetof(lh_reference_args, mask_shape) + sizeof(lh_mask_shape);

/// Throws InvalidArgument unless `struct_size` is at least `oldest`; for the init functions.
void check_init_size(const char* type, size_t struct_size, size_t oldest);

/// Throws InvalidArgument unless `struct_size` lies from `oldest` on, and Unsupported where the bytes beyond `known`
/// (fields of a newer header) are not all 0.
void check_struct(const void* object, const char* name, size_t struct_size, size_t oldest, size_t known);

/// A copy of a structure that a caller compiled with an older or newer header; `oldest` is its size in the first
/// header.
template <class T>
T copy_struct(const T* object, const char* name, size_t oldest) {
  check_struct(object, name, object->struct_size, oldest, sizeof(T));
  T copy{};
  std::memcpy(&copy, object, object->struct_size < sizeof(T) ? object->struct_size : sizeof(T));
  return copy;
}

TensorView to_view(const lh_tensor& tensor, const char* name);
AttentionArgs to_args(const lh_attention_args* args);
Phase to_phase(int32_t phase);
bool to_bool(int32_t value, const char* name);

/// Throws InvalidArgument unless 0 <= value <= largest.
void check_enum(int32_t value, int32_t largest, const char* name);

}  // namespace longhaul::capi
