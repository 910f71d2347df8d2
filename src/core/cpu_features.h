// Which instruction sets this machine and this build have; kernels are chosen from it at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// Slowest first. amx_emulated runs the kernels of amx without its hardware: for tests, never chosen.
enum class Isa { portable, avx2, avx512, amx, amx_emulated };

std::string_view isa_name(Isa isa);
/// Throws InvalidArgument naming the text and the allowed names.
Isa isa_from_name(std::string_view name);

/// Those both this CPU (with its operating system) and this build can run, slowest first. avx2 means AVX2 + FMA + F16C;
/// avx512 means AVX-512 F, BW, DQ, VL beside that; amx means AMX-TILE and AMX-BF16 beside that, and the kernel's leave.
std::vector<Isa> usable_isas();

/// usable_isas() and amx_emulated.
std::vector<Isa> testable_isas();

/// Why amx is not among usable_isas(), as a clause; empty where it is. The first call asks the operating system for
/// this process's leave to use tile registers.
std::string why_not_amx();

/// LONGHAUL_ISA if set (throws Unsupported where it is not usable), otherwise the last of usable_isas(). Read once.
Isa selected_isa();

/// For tests: overrides selected_isa() by one of testable_isas() until destroyed. Not thread-safe.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa);
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  int previous_;
};

}  // namespace longhaul
