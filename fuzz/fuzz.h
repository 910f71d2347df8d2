// What every target shares: a parser may refuse its input by one of our errors, in one line, and in no other way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "longhaul/error.h"

namespace longhaul::fuzz {

inline void require(bool condition) {
  if (!condition) std::abort();
}

template <class Body>
int refuses_politely(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported);
    require(std::strchr(error.what(), '\n') == nullptr);
    require(std::strlen(error.what()) < 4000);
  }
  return 0;
}

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace longhaul::fuzz
