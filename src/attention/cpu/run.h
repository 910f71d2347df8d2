// Host side of the CPU kernels: work items, workspace, threads.
#pragma once

#include <cstddef>

#include "attention/params.h"

namespace longhaul {

size_t cpu_prefill_workspace_bytes(const AttentionParams& p);
void cpu_prefill(const AttentionParams& p);

size_t cpu_decode_workspace_bytes(const AttentionParams& p);
void cpu_decode(const AttentionParams& p);

}  // namespace longhaul
