// The oracle's two inner loops, in double. AVX2 where the machine has it: four times the speed, and the oracle's last
// bit is a thousand times finer than any kernel's.
#pragma once

#include <cstdint>

#include "longhaul/dtype.h"

namespace longhaul::reference {

inline constexpr int kChunk = 64;  // keys handled at a time

/// scores[j] = sum over c of query[c] * keys[c][j]; keys lie [d][kChunk].
void dot_chunk(const double* query, const double* keys, int d, double* scores);

/// out[c] += weight * value[c].
void add_scaled(double weight, const double* value, int dv, double* out);

/// One row of n elements, converted exactly; out[c * stride].
void load_row(const void* data, DType dtype, int64_t offset, int n, double* out, int stride);

}  // namespace longhaul::reference
