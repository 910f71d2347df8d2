// Tile sizes, for host and device.
#pragma once

namespace longhaul::sm90 {

/// Rows of a work item, rows of a voting group (a warpgroup's), keys that are scored at once.
inline constexpr int kSm90TileRows = 192, kSm90GroupRows = 64, kSm90TileKeys = 128;

}  // namespace longhaul::sm90
