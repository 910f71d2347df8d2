// Cuts the caller's workspace into aligned parts; with a null base it only counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul {

inline constexpr size_t kWorkspaceAlignment = 64;

class WorkspaceCutter {
 public:
  explicit WorkspaceCutter(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  /// The next `count` elements; null while only counting.
  template <class T>
  T* take(size_t count) {
    const size_t at = bytes_;
    bytes_ += (count * sizeof(T) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  size_t bytes() const { return bytes_; }

 private:
  char* base_;
  size_t bytes_ = 0;
};

}  // namespace longhaul
