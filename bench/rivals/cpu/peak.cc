// What the machine can do: multiply-add rates in registers and read bandwidth, as ceilings for the attention kernels.
//
//   g++ -O3 -std=c++20 -pthread peak.cc -o peak && ./peak --threads 2
//
// Prints one JSON object: the median over the repeats, in GFLOP/s and GB/s. Threads are pinned to the first processors
// of the affinity mask it was started with.
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

// Independent chains: enough to cover a latency of 4 to 6 cycles on two units, few enough to stay in registers.
constexpr int kChains = 12;

// One instruction for each of the accumulators 0 to 11, with registers 14 and 15 (both zero) as operands.
// clang-format off
#define CHAIN(OP, R, N) OP " %%" R "14, %%" R "15, %%" R #N "\n\t"
#define CHAINS(OP, R)                                                                                        \
  CHAIN(OP, R, 0) CHAIN(OP, R, 1) CHAIN(OP, R, 2) CHAIN(OP, R, 3) CHAIN(OP, R, 4) CHAIN(OP, R, 5)            \
  CHAIN(OP, R, 6) CHAIN(OP, R, 7) CHAIN(OP, R, 8) CHAIN(OP, R, 9) CHAIN(OP, R, 10) CHAIN(OP, R, 11)
// clang-format on
#define CLOBBERS                                                                                                   \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", \
      "xmm15"

// In assembly, since a compiler spills or merges the chains. vzeroall clears all bits of registers 0 to 15.
#define RATE_LOOP(NAME, OP, R)                                                                   \
  void NAME(int64_t rounds) {                                                                    \
    asm volatile("vzeroall\n\t.p2align 5\n1:\n\t" CHAINS(OP, R) "dec %0\n\tjnz 1b\n\tvzeroupper" \
                 : "+r"(rounds)                                                                  \
                 :                                                                               \
                 : CLOBBERS);                                                                    \
  }

RATE_LOOP(fma_avx2, "vfmadd231ps", "ymm")
RATE_LOOP(fma_avx512, "vfmadd231ps", "zmm")
RATE_LOOP(dot_bf16, "vdpbf16ps", "zmm")

// Tiles of 16 rows of 64 bytes: 16 x 16 sums of 32 products an instruction, four independent chains.
constexpr int kTileChains = 4, kTileFlops = 2 * 16 * 16 * 32;

bool has_amx_bf16() {
  unsigned a, b, c, d;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTile) == 0) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl: the kernel saves tiles only for who asks
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

__attribute__((target("amx-tile,amx-bf16"))) void dot_amx(int64_t rounds) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("" : : "r"(&config) : "memory");  // the intrinsic tells the compiler of 8 of its 64 bytes only
  _tile_loadconfig(&config);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

volatile int sink;

__attribute__((target("avx2"))) void read_avx2(const char* data, size_t bytes) {
  __m256i acc[8] = {};
  for (size_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      acc[i] = _mm256_xor_si256(acc[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at + 32 * i)));
  }
  for (int i = 1; i < 8; ++i) acc[0] = _mm256_xor_si256(acc[0], acc[i]);
  sink = _mm256_extract_epi32(acc[0], 0);
}

struct Options {
  int threads = 1;
  int repeats = 20;
  size_t bytes = size_t{512} << 20;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const long value = i + 1 < argc ? strtol(argv[i + 1], nullptr, 10) : 0;
    ++i;
    if (value < 1 || (name != "--threads" && name != "--repeats" && name != "--megabytes")) {
      fprintf(stderr, "peak: %s needs a number above 0; options are --threads, --repeats, --megabytes\n", name.c_str());
      exit(2);
    }
    if (name == "--threads") options.threads = static_cast<int>(value);
    if (name == "--repeats") options.repeats = static_cast<int>(value);
    if (name == "--megabytes") options.bytes = static_cast<size_t>(value) << 20;
  }
  return options;
}

std::vector<int> allowed_cpus(int wanted) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE && static_cast<int>(cpus.size()) < wanted; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  if (static_cast<int>(cpus.size()) < wanted) {
    fprintf(stderr, "peak: --threads is %d, but only %zu processors are allowed\n", wanted, cpus.size());
    exit(2);
  }
  return cpus;
}

// Median seconds of `body(thread)` run by all threads at once.
double median_seconds(const std::vector<int>& cpus, int repeats, const std::function<void(int)>& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds(repeats);
  Clock::time_point begin;
  std::barrier gate(static_cast<ptrdiff_t>(cpus.size()));
  const auto work = [&](int thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[thread], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    body(thread);  // the first run is not counted
    for (int r = 0; r < repeats; ++r) {
      gate.arrive_and_wait();
      if (thread == 0) begin = Clock::now();
      gate.arrive_and_wait();
      body(thread);
      gate.arrive_and_wait();
      if (thread == 0) seconds[r] = std::chrono::duration<double>(Clock::now() - begin).count();
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < cpus.size(); ++t) threads.emplace_back(work, static_cast<int>(t));
  for (std::thread& thread : threads) thread.join();
  std::sort(seconds.begin(), seconds.end());
  return seconds[repeats / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const std::vector<int> cpus = allowed_cpus(options.threads);
  const int64_t rounds = 2'000'000;  // about 10 ms
  const auto rate = [&](int flops, void (*loop)(int64_t), int chains = kChains) {
    const double seconds = median_seconds(cpus, options.repeats, [&](int) { loop(rounds); });
    return 1e-9 * static_cast<double>(rounds) * chains * flops * options.threads / seconds;
  };
  std::string fields;
  char text[96];
  const auto add = [&](const char* name, double value) {
    snprintf(text, sizeof text, ", \"%s\": %.2f", name, value);
    fields += text;
  };
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) add("fma_avx2_gflops", rate(16, fma_avx2));
  if (__builtin_cpu_supports("avx512f")) add("fma_avx512_gflops", rate(32, fma_avx512));
  if (__builtin_cpu_supports("avx512bf16")) add("dpbf16_gflops", rate(64, dot_bf16));
  if (has_amx_bf16()) add("amx_bf16_gflops", rate(kTileFlops, dot_amx, kTileChains));

  const size_t share = options.bytes / options.threads & ~size_t{4095};
  const size_t total = share * options.threads;
  char* data = static_cast<char*>(mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (data == MAP_FAILED) {
    fprintf(stderr, "peak: %zu bytes cannot be mapped\n", total);
    return 1;
  }
  madvise(data, total, MADV_HUGEPAGE);
  memset(data, 1, total);
  if (__builtin_cpu_supports("avx2")) {
    const double seconds = median_seconds(cpus, options.repeats, [&](int t) { read_avx2(data + t * share, share); });
    add("read_gbps", 1e-9 * static_cast<double>(total) / seconds);
  }
  printf("{\"threads\": %d, \"repeats\": %d%s}\n", options.threads, options.repeats, fields.c_str());
  return 0;
}
