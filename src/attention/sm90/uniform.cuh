// Values that are the same in all lanes, said so to the compiler: a warp reduction leaves them in a uniform register.
//
// What steers control flow around a wgmma, or addresses shared memory or a copy, goes through here once. Without it
// each wgmma waits for its descriptor to be moved there, a branch around a wgmma makes ptxas serialise all of them, and
// the copy instruction is handed its addresses lane by lane, in a loop of a hundred cycles a copy.
#pragma once

#include <cstdint>

namespace longhaul::sm90 {

__device__ __forceinline__ int uniform(int x) { return __reduce_max_sync(0xffffffff, x); }
__device__ __forceinline__ uint32_t uniform(uint32_t x) { return __reduce_or_sync(0xffffffff, x); }

}  // namespace longhaul::sm90
