// The workspace a call asks for, aligned as it must be.
#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/attention.h"

namespace longhaul::conformance {

inline void give_workspace(AttentionArgs& args, Phase phase, std::vector<uint8_t>& memory) {
  constexpr uintptr_t kAlignment = 64;
  args.workspace_bytes = attention_workspace_bytes(args, phase);
  memory.resize(args.workspace_bytes + kAlignment);
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  args.workspace = memory.data() + (kAlignment - at % kAlignment) % kAlignment;
}

}  // namespace longhaul::conformance
