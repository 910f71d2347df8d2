#include "attention/sm90/device.h"

#include <fmt/format.h>

namespace longhaul {

std::string sm90_refusal(int major, int minor) {
  if (major == 9 && minor == 0) return {};
  return fmt::format("compute capability {}.{} (sm_{}{}), but the kernels of this version need 9.0 (sm_90: H100, H200)",
                     major, minor, major, minor);
}

}  // namespace longhaul
