// What the tests of the configuration forms share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "longhaul/error.h"

namespace longhaul {

/// The message, which must be one line; "" when nothing is thrown.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

inline void expect_message(const std::string& message, const std::string& part, const std::string& input) {
  EXPECT_NE(message.find(part), std::string::npos) << input << "\ngave: " << message;
}

}  // namespace longhaul
