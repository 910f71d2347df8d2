// How much work a randomised test does: LONGHAUL_TEST_LEVEL = short (sanitizer builds), normal (default) or long
// (releases).
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace longhaul::testing {

enum class TestLevel { kShort, kNormal, kLong };

inline TestLevel test_level() {
  const char* text = std::getenv("LONGHAUL_TEST_LEVEL");
  const std::string level = text == nullptr ? "normal" : text;
  if (level == "short") return TestLevel::kShort;
  if (level == "normal") return TestLevel::kNormal;
  if (level == "long") return TestLevel::kLong;
  throw std::invalid_argument("LONGHAUL_TEST_LEVEL is '" + level + "': allowed are short, normal and long");
}

/// The number of random cases that suits the level.
inline int rounds(int at_short, int at_normal, int at_long) {
  switch (test_level()) {
    case TestLevel::kShort:
      return at_short;
    case TestLevel::kNormal:
      return at_normal;
    case TestLevel::kLong:
      return at_long;
  }
  return at_normal;
}

}  // namespace longhaul::testing
