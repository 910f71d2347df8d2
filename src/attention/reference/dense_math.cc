#include "attention/reference/dense_math.h"

#include <algorithm>

#include "core/cpu_features.h"

namespace longhaul::reference {
namespace {

[[gnu::always_inline]] inline void dot_chunk_body(const double* query, const double* keys, int d, double* scores) {
  double sum[kChunk] = {};
  for (int c = 0; c < d; ++c) {
    const double q = query[c];
    const double* row = keys + c * kChunk;
    for (int j = 0; j < kChunk; ++j) sum[j] += q * row[j];
  }
  std::copy(sum, sum + kChunk, scores);
}

[[gnu::always_inline]] inline void add_scaled_body(double weight, const double* value, int dv, double* out) {
  for (int c = 0; c < dv; ++c) out[c] += weight * value[c];
}

#ifdef __x86_64__
[[gnu::target("avx2,fma")]] void dot_chunk_avx2(const double* query, const double* keys, int d, double* scores) {
  dot_chunk_body(query, keys, d, scores);
}
[[gnu::target("avx2,fma")]] void add_scaled_avx2(double weight, const double* value, int dv, double* out) {
  add_scaled_body(weight, value, dv, out);
}
// Asked directly, not through usable_isas(): the oracle must not change when a test chooses the kernels' instruction
// set.
bool have_avx2() {
  static const bool have = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return have;
}
#endif

template <class Convert>
void convert_row(Convert convert, int n, double* out, int stride) {
  for (int c = 0; c < n; ++c) out[static_cast<int64_t>(c) * stride] = static_cast<double>(convert(c));
}

}  // namespace

void dot_chunk(const double* query, const double* keys, int d, double* scores) {
#ifdef __x86_64__
  if (have_avx2()) return dot_chunk_avx2(query, keys, d, scores);
#endif
  dot_chunk_body(query, keys, d, scores);
}

void add_scaled(double weight, const double* value, int dv, double* out) {
#ifdef __x86_64__
  if (have_avx2()) return add_scaled_avx2(weight, value, dv, out);
#endif
  add_scaled_body(weight, value, dv, out);
}

void load_row(const void* data, DType dtype, int64_t offset, int n, double* out, int stride) {
  switch (dtype) {
    case DType::f32: {
      const float* row = static_cast<const float*>(data) + offset;
      return convert_row([&](int c) { return row[c]; }, n, out, stride);
    }
    case DType::bf16: {
      const uint16_t* row = static_cast<const uint16_t*>(data) + offset;
      return convert_row([&](int c) { return bf16_to_float(row[c]); }, n, out, stride);
    }
    default:
      convert_row([&](int c) { return load_as_float(data, dtype, offset + c); }, n, out, stride);
  }
}

}  // namespace longhaul::reference
