// The environment variables that the library reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/export.h"

namespace longhaul {

struct Setting {
  std::string_view name;           ///< "LONGHAUL_THREADS"
  std::string_view meaning;        ///< one sentence
  std::string_view allowed;        ///< "1 to 1024"
  std::string_view default_value;  ///< what holds where the variable is not set
  std::string value;               ///< the environment's text, or default_value
  bool from_environment = false;   ///< set, and not empty
  std::string error;               ///< empty, or why a call that needs the setting will throw
};

/// Every variable with its current value, in a fixed order. Thread-safe as long as nobody changes the environment.
LONGHAUL_API std::vector<Setting> settings();

/// Variables of the environment that begin with LONGHAUL_ and mean nothing to this library, sorted: misspelled, or of
/// another version. Thread-safe likewise.
LONGHAUL_API std::vector<std::string> unknown_settings();

}  // namespace longhaul
