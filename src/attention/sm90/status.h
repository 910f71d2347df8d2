// What a kernel finds wrong in device memory, where the host never looks: bits in pinned host memory, one word a
// device. The next call on that device reports them and clears them.
#pragma once

#include <cstdint>

namespace longhaul {

/// A byte each: kernels write theirs with a plain store (a device cannot count on atomics in host memory).
enum Sm90Status : uint32_t {
  kSm90LambdaOutOfRange = 1U << 0,  ///< a lambda is NaN or outside [0, 1]; it acted as 0
  kSm90LengthsMalformed = 1U << 8,  ///< cumulative lengths decrease or leave the tensors, or a length exceeds its pages
  kSm90MaskTooSmall = 1U << 16,     ///< skip_mask has fewer groups or blocks than the lengths need
  kSm90TooManyRows = 1U << 24,      ///< decode: a request has more rows than the kernel holds
};

/// The current device's word, as the device sees it. Allocated on first use, even while a stream is capturing.
/// Thread-safe.
uint32_t* sm90_status_word();

/// Throws InvalidArgument naming what an earlier call on the current device met, and clears it. Thread-safe.
void report_sm90_status();

}  // namespace longhaul
