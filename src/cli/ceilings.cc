#include "cli/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cli/support/machine.h"
#include "core/cpu_features.h"
#include "core/thread_pool.h"

namespace longhaul::cli {
namespace {

constexpr int kChains = 12;  // independent sums: latency 4 or 5 times 2 units needs 8 to 10
constexpr int kSteps = 1 << 20;
constexpr int kRounds = 7;

using Vector16 __attribute__((vector_size(64))) = float;
using Vector8 __attribute__((vector_size(32))) = float;
using Vector4 __attribute__((vector_size(16))) = float;

// One function for each instruction set, since vector code is lowered by the function's own target attribute. The
// barrier keeps every chain in a register and stops the compiler from folding the steps. The target comes last: GCC 14
// forgets one that stands before optimize.
#define LONGHAUL_DEFINE_CHAINS(name, Vector, constraint, ...)           \
  __attribute__((__VA_ARGS__)) float name() {                           \
    Vector sum[kChains], factor = Vector{} + 0.999999F;                 \
    const Vector term = Vector{} + 1e-6F;                               \
    for (int c = 0; c < kChains; ++c) sum[c] = Vector{} + float(c + 1); \
    for (int step = 0; step < kSteps; ++step) {                         \
      _Pragma("GCC unroll 12") for (int c = 0; c < kChains; ++c) {      \
        sum[c] = sum[c] * factor + term;                                \
        asm volatile("" : "+" constraint(sum[c]));                      \
      }                                                                 \
    }                                                                   \
    float total = 0;                                                    \
    for (int c = 0; c < kChains; ++c) total += sum[c][0];               \
    return total;                                                       \
  }

#if defined(__x86_64__)
LONGHAUL_DEFINE_CHAINS(chains_avx512, Vector16, "v", optimize("O3"), target("avx512f"))
LONGHAUL_DEFINE_CHAINS(chains_avx2, Vector8, "x", optimize("O3"), target("avx2,fma"))
LONGHAUL_DEFINE_CHAINS(chains_portable, Vector4, "x", optimize("O3"))
#elif defined(__aarch64__)
LONGHAUL_DEFINE_CHAINS(chains_portable, Vector4, "w", optimize("O3"))
#else
LONGHAUL_DEFINE_CHAINS(chains_portable, Vector4, "m", optimize("O3"))
#endif
#undef LONGHAUL_DEFINE_CHAINS

struct Chains {
  float (*run)();
  int lanes;
};

Chains chains() {
#if defined(__x86_64__)
  if (selected_isa() >= Isa::avx512) return {chains_avx512, 16};
  if (selected_isa() == Isa::avx2) return {chains_avx2, 8};
#endif
  return {chains_portable, 4};
}

double seconds_of(int threads, WorkerRef body) {
  const auto start = std::chrono::steady_clock::now();
  run_on_workers(threads, body);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::atomic<uint64_t> sink{0};

// Eight sums keep the loads independent; with -O3 the loop is vectorised.
__attribute__((optimize("O3"))) uint64_t sum_of(const uint64_t* values, size_t n) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] += values[i + j];
  uint64_t total = 0;
  for (const uint64_t s : sums) total += s;
  return total;
}

double read_all(const std::vector<uint64_t>& memory, int threads) {
  const size_t share = memory.size() / static_cast<size_t>(threads);
  return seconds_of(threads,
                    [&](int worker) { sink += sum_of(memory.data() + share * static_cast<size_t>(worker), share); });
}

size_t last_cache_bytes() {
  int64_t bytes = 32 << 20;
  for (const Cache& cache : cpu_caches()) bytes = std::max(bytes, cache.bytes);
  return static_cast<size_t>(bytes);
}

}  // namespace

double fma_peak(int threads) {
  const Chains kernel = chains();
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double seconds = seconds_of(threads, [&](int) { sink += static_cast<uint64_t>(kernel.run()); });
    best = std::max(best, 2.0 * kernel.lanes * kChains * kSteps * threads / seconds);
  }
  return best;
}

double read_bandwidth(int threads) {
  const size_t bytes = std::max<size_t>(256 << 20, 8 * last_cache_bytes());
  const std::vector<uint64_t> memory(bytes / sizeof(uint64_t), 1);
  double best = 0;
  for (int round = 0; round < kRounds; ++round)
    best = std::max(best, static_cast<double>(bytes) / read_all(memory, threads));
  return best;
}

void evict_caches(int threads) {
  static const std::vector<uint64_t> memory(2 * last_cache_bytes() / sizeof(uint64_t), 1);
  read_all(memory, threads);
}

}  // namespace longhaul::cli
