// Tile sizes, for host and device.
#pragma once

namespace longhaul::sm90 {

inline constexpr int kSm90TileRows = 128, kSm90TileKeys = 128;

}  // namespace longhaul::sm90
