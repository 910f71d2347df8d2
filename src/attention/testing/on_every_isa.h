// Runs each TEST_P(OnEveryIsa, ...) of the including test on every instruction set of the machine, and on emulated
// tiles.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/cpu_features.h"
#include "test_level.h"

namespace longhaul::conformance {

class OnEveryIsa : public ::testing::TestWithParam<Isa> {
 private:
  ScopedIsa scoped_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Isa, OnEveryIsa, ::testing::ValuesIn(testable_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

/// How many random cases a property draws: a quarter or twenty times `normal` at the other test levels.
inline uint64_t seeds(int normal) {
  return static_cast<uint64_t>(longhaul::testing::rounds(normal / 4, normal, 20 * normal));
}

}  // namespace longhaul::conformance
