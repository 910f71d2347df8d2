// The order in which a row meets the key tiles.
#pragma once

#include <cstdint>

namespace longhaul {

enum class VisitOrder : int32_t {
  newest_first = 0,  ///< the kernels' order: tiles from the newest visible key backwards
  ascending = 1,     ///< the published order (TensorRT-LLM, FlashInfer): tiles from the oldest key forwards
};

}  // namespace longhaul
