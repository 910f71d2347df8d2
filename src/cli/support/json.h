// JSON in the order it was written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace longhaul::cli {

using Json = nlohmann::ordered_json;

/// Writes to `path` ("-": standard output), whole or not at all; nothing where path is empty.
void write_json(const std::string& path, const Json& json);

/// Throws System or InvalidArgument, each naming the file.
Json read_json(const std::string& path);

/// The head of every result file: date, commit, machine, command.
Json result_header(const std::string& command);

}  // namespace longhaul::cli
