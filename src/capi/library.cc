// What does not concern attention: versions and the machine.
#include "capi/status.h"
#include "core/cpu_features.h"
#include "core/thread_pool.h"

using longhaul::capi::guarded;
using longhaul::capi::require_pointer;

extern "C" {

int32_t lh_abi_version(void) noexcept { return LH_ABI_VERSION; }

const char* lh_version(void) noexcept { return LONGHAUL_VERSION; }

lh_status lh_isa(const char** name) noexcept {
  return guarded([&] {
    require_pointer(name, "name");
    *name = longhaul::isa_name(longhaul::selected_isa()).data();  // a literal, so it ends with a 0
  });
}

lh_status lh_default_threads(int32_t* threads) noexcept {
  return guarded([&] {
    require_pointer(threads, "threads");
    *threads = longhaul::default_threads();
  });
}

}  // extern "C"
