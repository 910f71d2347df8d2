// Reading and writing safetensors files: a little-endian u64 header length, a JSON header, then the tensors' bytes.
// Strict: a file that lies about itself is refused with one sentence naming the file and what is wrong.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tensor.h"

namespace longhaul {

struct NamedTensor {
  std::string name;
  TensorView view;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsContents {
  std::vector<NamedTensor> tensors;  ///< in the order of the header; row-major views into the bytes
  SafetensorsMetadata metadata;
};

/// Largest header the format allows.
inline constexpr size_t kMaxSafetensorsHeader = 100'000'000;

/// Checks `bytes` (aligned to 8) completely and describes the tensors, copying nothing. `source` names the file in
/// messages. Throws InvalidArgument where the bytes are no valid file; Unsupported for ranks 0 and above
/// TensorView::kMaxRank and for dtypes other than F32, F16, BF16, F8_E4M3, I32, I64 and U8.
SafetensorsContents parse_safetensors(std::span<const std::byte> bytes, std::string_view source);

/// A file mapped read-only. The views stay valid as long as any copy of this object lives and nobody shortens the file.
/// Thread-safe: nothing changes after opening.
class SafetensorsFile {
 public:
  /// Throws System where the file cannot be read, otherwise as parse_safetensors.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<NamedTensor>& tensors() const { return contents_.tensors; }
  const SafetensorsMetadata& metadata() const { return contents_.metadata; }
  std::vector<std::string> names() const;
  /// A view with given() == false where there is no such tensor.
  TensorView find(std::string_view name) const;
  /// Throws InvalidArgument listing the names that there are.
  TensorView get(std::string_view name) const;

 private:
  class Mapping;
  std::string path_;
  std::shared_ptr<const Mapping> mapping_;
  SafetensorsContents contents_;
};

/// Writes beside the target and renames, so the target holds either its old content or all of the new one, also after a
/// full disk or an interrupt. Strided views are written row-major; the data is ordered by element size, so that every
/// tensor is aligned. Throws InvalidArgument for names that are empty, repeated, reserved or no UTF-8, and for views on
/// a device; System where writing fails.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace longhaul
