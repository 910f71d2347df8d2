// Seeded mistakes for testing the tests. A build with LONGHAUL_MUTATIONS carries each LONGHAUL_MUTATE(n, good, bad) as
// a choice at run time: `bad` where the environment variable LONGHAUL_MUTATION is n. Every other build contains `good`
// alone.
#pragma once

#ifdef LONGHAUL_MUTATIONS

#include <cstdlib>

namespace longhaul {
inline const int kActiveMutation = std::getenv("LONGHAUL_MUTATION") ? std::atoi(std::getenv("LONGHAUL_MUTATION")) : 0;
}  // namespace longhaul

#define LONGHAUL_MUTATE(n, good, bad) (::longhaul::kActiveMutation == (n) ? (bad) : (good))

#else

#define LONGHAUL_MUTATE(n, good, bad) (good)

#endif
