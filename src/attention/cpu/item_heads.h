// How many KV heads one decode item walks together.
#pragma once

#include <algorithm>

#include "attention/params.h"

namespace longhaul {

inline constexpr int kMaxItemHeads = 16;

/// Where the heads of a token lie side by side, reading one head alone uses 256 bytes here and there: from one core of
/// an AMD EPYC (Zen 3) 256 bytes of every 512 came at 4.7 GB/s, of every 1024 at 3.3, whole rows at 10.3 (median of 7).
/// Heads up to 1 KB of a token are enough; more would only leave fewer items for the threads.
inline int decode_item_heads(const AttentionParams& p) {
  if (p.k_head != p.d || p.v_head != p.dv) return 1;
  const int bytes = p.dv * static_cast<int>(dtype_size(p.kv_dtype));
  return std::clamp(1024 / bytes, 1, std::min(p.heads_kv, kMaxItemHeads));
}

}  // namespace longhaul
