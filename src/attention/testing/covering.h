// Pairwise covering arrays: few rows in which every pair of values of any two factors occurs.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul::conformance {

/// `levels[f]` is the number of values of factor f; each row gives every factor a value. Greedy; the same for the same
/// seed.
std::vector<std::vector<int>> covering_array(const std::vector<int>& levels, uint64_t seed);

}  // namespace longhaul::conformance
