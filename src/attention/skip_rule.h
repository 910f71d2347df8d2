// The skip rule itself, for one row and one block; host and device code share it.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define LONGHAUL_HOST_DEVICE __host__ __device__
#else
#define LONGHAUL_HOST_DEVICE
#endif

namespace longhaul {

/// One row's vote to drop a block whose largest visible score is `block_max`, against the reference `m_ref`, both in
/// natural units. A reference that is not finite (nothing seen yet, +inf or NaN met) never votes to skip. A row that
/// sees no key of the block must not be asked. A block that holds a visible score that is not finite must be kept
/// without asking.
template <class Real>
LONGHAUL_HOST_DEVICE inline bool votes_to_skip(Real block_max, Real m_ref, Real log_lambda) {
  return block_max - m_ref < log_lambda && m_ref < Real(INFINITY);
}

}  // namespace longhaul
