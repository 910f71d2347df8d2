// Foreign text inside a one-sentence message.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace longhaul {

/// At most 80 bytes of `text`, control characters as \xNN, so that a message stays one line whatever a file holds.
inline std::string printable(std::string_view text) {
  constexpr size_t kLimit = 80;
  size_t length = text.size() <= kLimit ? text.size() : kLimit;
  while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80)
    --length;  // whole characters
  std::string result;
  for (const char c : text.substr(0, length)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return length < text.size() ? result + "…" : result;
}

}  // namespace longhaul
