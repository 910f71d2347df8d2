// Which instruction sets this machine and this build have; kernels are chosen from it at run time.
#pragma once

#include <string_view>
#include <vector>

namespace longhaul {

enum class Isa { portable, avx2, avx512 };  // slowest first

std::string_view isa_name(Isa isa);
/// Throws InvalidArgument naming the text and the allowed names.
Isa isa_from_name(std::string_view name);

/// Those both this CPU (with its operating system) and this build can run, slowest first. avx2 means AVX2 + FMA + F16C;
/// avx512 means AVX-512 F, BW, DQ, VL beside that.
std::vector<Isa> usable_isas();

/// LONGHAUL_ISA if set (throws Unsupported where it is not usable), otherwise the last of usable_isas(). Read once.
Isa selected_isa();

/// For tests: overrides selected_isa() until destroyed. Not thread-safe.
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
