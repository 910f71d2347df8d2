#include "cli/support/json.h"

#include <fmt/core.h>

#include "cli/support/console.h"
#include "cli/support/interrupt.h"
#include "cli/support/machine.h"
#include "io/atomic_file.h"
#include "longhaul/error.h"

namespace longhaul::cli {

void write_json(const std::string& path, const Json& json) {
  if (path.empty()) return;
  // A file's name or metadata may be no UTF-8: that must not cost the result.
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  path == "-" ? print_result(text) : write_file(path, text);
}

Json read_json(const std::string& path) {
  constexpr size_t kMaxJson = 64 << 20;
  try {
    // Freeing or printing a tree takes stack for every level.
    const auto shallow = [&path](int depth, Json::parse_event_t, Json&) {
      constexpr int kMaxDepth = 64;
      if (depth > kMaxDepth) throw InvalidArgument(fmt::format("'{}' nests deeper than {} levels", path, kMaxDepth));
      return true;
    };
    return Json::parse(read_text_file(path, kMaxJson), shallow);
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(fmt::format("'{}' is not JSON", path));
  }
}

Json result_header(const std::string& command) {
  return {{"date", utc_now()},
          {"version", version_text()},
          {"commit", *build_commit() ? Json(build_commit()) : Json()},
          {"machine", machine_json()},
          {"command", command}};
}

}  // namespace longhaul::cli
