// Settings as the code uses them. An empty variable counts as not set.
#pragma once

#include <optional>

#include "core/cpu_features.h"

namespace longhaul {

inline constexpr int kMaxThreads = 1024, kMaxMultiprocessors = 1024;

/// LONGHAUL_THREADS; throws InvalidArgument unless it is a whole number from 1 to kMaxThreads.
std::optional<int> threads_setting();

/// LONGHAUL_MULTIPROCESSORS; throws InvalidArgument unless it is a whole number from 2 to kMaxMultiprocessors.
std::optional<int> multiprocessors_setting();

/// LONGHAUL_ISA; throws InvalidArgument unless it names an instruction set.
std::optional<Isa> isa_setting();

}  // namespace longhaul
