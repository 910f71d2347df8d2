// How many multiprocessors a call may use.
#pragma once

namespace longhaul {

/// Those of the current device, or LONGHAUL_MULTIPROCESSORS if that is less.
int usable_multiprocessors();

}  // namespace longhaul
