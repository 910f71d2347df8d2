// The parts in which the decode kernel walks a head's keys, for whoever must decide as it does (the oracle).
#pragma once

#include <vector>

#include "attention/params.h"
#include "attention/tile_plan.h"

namespace longhaul {

/// Parts of the keys of one KV head of a request, the newest first, none empty; lengths are read on the host. All but
/// the first start from the newest tile's maxima.
std::vector<KeyRange> sm90_decode_parts(const AttentionParams& p, int multiprocessors, int request, int head_kv);

}  // namespace longhaul
