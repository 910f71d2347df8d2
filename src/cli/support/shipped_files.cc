#include "cli/support/shipped_files.h"

#include <fmt/core.h>

#include <filesystem>
#include <vector>

#include "cli/support/machine.h"
#include "longhaul/error.h"

namespace longhaul::cli {

std::string shipped_path(const std::string& name) {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) places.push_back(program.parent_path().parent_path() / "share" / "longhaul");
  // Its own tree before an installed one, which may be older.
  places.emplace_back(build_folder());
  places.emplace_back(source_folder());
  places.emplace_back(data_folder());
  std::string looked;
  for (const fs::path& place : places) {
    if (fs::exists(place / name, error)) return (place / name).lexically_normal().string();
    looked += (looked.empty() ? "" : ", ") + place.lexically_normal().string();
  }
  throw System(fmt::format("'{}' was not found in any of {}", name, looked));
}

}  // namespace longhaul::cli
