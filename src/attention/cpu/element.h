// Storage types of tensor elements, so that loads are chosen by overload.
#pragma once

#include <cstdint>

#define LONGHAUL_INLINE static inline __attribute__((always_inline))

namespace longhaul {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct F8E4M3 {
  uint8_t bits;
};

}  // namespace longhaul
