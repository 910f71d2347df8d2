// The step from what can still fail to what is written.
#pragma once

#include <cstring>

#include "attention/params.h"
#include "core/thread_pool.h"

namespace longhaul {

/// Starts the threads of the call, the last thing that can fail, and then clears the skip mask, the first result that
/// is written.
inline void begin_results(const AttentionParams& p, int threads) {
  start_workers(threads);
  if (p.skip_mask != nullptr)
    std::memset(p.skip_mask, 0, static_cast<size_t>(p.mask_heads * p.mask_groups * p.mask_blocks));
}

}  // namespace longhaul
