// What a result must say about where it was measured.
#pragma once

#include <string>
#include <vector>

#include "cli/support/json.h"

namespace longhaul::cli {

struct Cache {
  int level;
  std::string type;
  int64_t bytes;
};

std::string cpu_model();
/// Cores that this process may run on.
int usable_cores();
std::vector<Cache> cpu_caches();
int64_t memory_bytes();
std::string operating_system();
std::string compiler_text();
/// As "2026-11-30T17:20:00Z".
std::string utc_now();

Json machine_json();

/// Set when the program was built: git's commit ("" outside a checkout) and whether the tree had changes.
const char* build_commit();
const char* build_type();
const char* version_text();
/// The checkout the program was built from, its build folder, and where `cmake --install` puts data.
const char* source_folder();
const char* build_folder();
const char* data_folder();

}  // namespace longhaul::cli
