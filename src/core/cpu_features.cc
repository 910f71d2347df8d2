#include "core/cpu_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "core/environment.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr int kNotOverridden = -1;
std::atomic<int> g_override{kNotOverridden};

bool runs_here([[maybe_unused]] Isa isa) {
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
  }
  throw InvalidArgument(fmt::format("isa has the value {}, but allowed are 0 to 2", static_cast<int>(isa)));
}

Isa isa_from_name(std::string_view name) {
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (isa_name(isa) == name) {
      return isa;
    }
  }
  throw InvalidArgument(fmt::format("isa is '{}', but allowed are portable, avx2 and avx512", name));
}

std::vector<Isa> usable_isas() {
  std::vector<Isa> result;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (runs_here(isa)) {
      result.push_back(isa);
    }
  }
  return result;
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
  const std::vector<Isa> usable = usable_isas();
  if (std::find(usable.begin(), usable.end(), isa) == usable.end()) {
    throw Unsupported(fmt::format("isa is '{}', but the fastest this machine and this build have is '{}'",
                                  isa_name(isa), isa_name(usable.back())));
  }
  g_override = static_cast<int>(isa);
}

ScopedIsa::~ScopedIsa() { g_override = previous_; }

}  // namespace longhaul
