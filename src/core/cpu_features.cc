#include "core/cpu_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "core/environment.h"
#include "longhaul/error.h"

#ifdef LONGHAUL_HAVE_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#endif

namespace longhaul {
namespace {

constexpr int kNotOverridden = -1;
std::atomic<int> g_override{kNotOverridden};

constexpr Isa kAll[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx, Isa::amx_emulated};

#ifdef LONGHAUL_HAVE_AMX

bool cpu_has_amx() {
  constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0 && (d & kAmxTile) != 0;
}

/// Whether the operating system saves the tile registers with a thread's state: XCR0 bits 17 and 18.
bool system_saves_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1U << 27)) == 0) return false;  // no xgetbv
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 0x60000U) == 0x60000U;
}

/// 0, or the error number. Leave holds for all threads of the process, those that exist included.
int ask_for_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
}

#endif

bool runs_here([[maybe_unused]] Isa isa) {
#ifdef LONGHAUL_HAVE_AMX
  if (isa == Isa::amx) return why_not_amx().empty();
#endif
#ifdef LONGHAUL_HAVE_AVX2
  if (isa == Isa::avx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  }
#endif
#ifdef LONGHAUL_HAVE_AVX512
  if (isa == Isa::avx512) {
    return runs_here(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::portable;
}

Isa isa_from_environment() {
  const std::vector<Isa> usable = usable_isas();
  const std::optional<Isa> wanted = isa_setting();
  if (!wanted) {
    return usable.back();
  }
  if (std::find(usable.begin(), usable.end(), *wanted) == usable.end()) {
    throw Unsupported(fmt::format("LONGHAUL_ISA is '{}', but the fastest this machine and this build have is '{}'",
                                  isa_name(*wanted), isa_name(usable.back())));
  }
  return *wanted;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::amx:
      return "amx";
    case Isa::amx_emulated:
      return "amx_emulated";
  }
  throw InvalidArgument(fmt::format("isa has the value {}, but allowed are 0 to 4", static_cast<int>(isa)));
}

Isa isa_from_name(std::string_view name) {
  for (const Isa isa : kAll) {
    if (isa_name(isa) == name) {
      return isa;
    }
  }
  throw InvalidArgument(fmt::format("isa is '{}', but allowed are portable, avx2, avx512, amx and amx_emulated", name));
}

std::vector<Isa> usable_isas() {
  std::vector<Isa> result;
  for (const Isa isa : kAll) {
    if (runs_here(isa)) {
      result.push_back(isa);
    }
  }
  return result;
}

std::vector<Isa> testable_isas() {
  std::vector<Isa> result = usable_isas();
  result.push_back(Isa::amx_emulated);
  return result;
}

std::string why_not_amx() {
#ifdef LONGHAUL_HAVE_AMX
  static const std::string reason = [] {
    if (!cpu_has_amx()) return std::string("this processor has no AMX-BF16");
    if (!runs_here(Isa::avx512)) return std::string("avx512 is not usable");
    if (!system_saves_tiles()) return std::string("the operating system does not save tile registers");
    const int error = ask_for_tiles();
    return error == 0 ? std::string() : fmt::format("the operating system refuses tile registers: {}", strerror(error));
  }();
  return reason;
#else
  return "this build has no AMX kernels";
#endif
}

Isa selected_isa() {
  const int forced = g_override.load(std::memory_order_relaxed);
  if (forced != kNotOverridden) {
    return static_cast<Isa>(forced);
  }
  static const Isa selected = isa_from_environment();  // read again after a throw
  return selected;
}

ScopedIsa::ScopedIsa(Isa isa) : previous_(g_override.load()) {
  const std::vector<Isa> testable = testable_isas();
  if (std::find(testable.begin(), testable.end(), isa) == testable.end()) {
    throw Unsupported(fmt::format("isa is '{}', but the fastest this machine and this build have is '{}'",
                                  isa_name(isa), isa_name(usable_isas().back())));
  }
  g_override = static_cast<int>(isa);
}

ScopedIsa::~ScopedIsa() { g_override = previous_; }

}  // namespace longhaul
