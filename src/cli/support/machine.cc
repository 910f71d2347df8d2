#include "cli/support/machine.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "cli/support/build_info.h"
#include "core/cpu_features.h"
#include "core/cuda/devices.h"

namespace longhaul::cli {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The text after "key : " or "key=" in a file of such lines; "" where it is not there.
std::string value_of(const std::string& path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_last_not_of(" \t", at - 1) + 1 != key.size()) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\"") + 1 - begin);
  }
  return "";
}

}  // namespace

std::string cpu_model() {
  for (const char* key : {"model name", "Model", "cpu model"})
    if (std::string model = value_of("/proc/cpuinfo", key, ':'); !model.empty()) return model;
  utsname name{};
  return uname(&name) == 0 ? fmt::format("unnamed {} processor", name.machine) : "unknown";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::vector<Cache> cpu_caches() {
  std::vector<Cache> caches;
  const std::filesystem::path base = "/sys/devices/system/cpu/cpu0/cache";
  for (int index = 0; std::filesystem::exists(base / fmt::format("index{}", index)); ++index) {
    const auto folder = base / fmt::format("index{}", index);
    const std::string level = first_line(folder / "level"), size = first_line(folder / "size");
    if (level.empty() || size.empty()) continue;
    const int64_t unit = size.back() == 'K' ? 1024 : size.back() == 'M' ? 1024 * 1024 : 1;
    caches.push_back({std::atoi(level.c_str()), first_line(folder / "type"), std::atoll(size.c_str()) * unit});
  }
  return caches;
}

int64_t memory_bytes() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

std::string operating_system() {
  const std::string pretty = value_of("/etc/os-release", "PRETTY_NAME", '=');
  utsname name{};
  if (uname(&name) != 0) return pretty;
  return fmt::format("{}, Linux {}, {}", pretty.empty() ? "Linux" : pretty, name.release, name.machine);
}

std::string compiler_text() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json machine_json() {
  Json caches = Json::array();
  for (const Cache& cache : cpu_caches())
    caches.push_back({{"level", cache.level}, {"type", cache.type}, {"bytes", cache.bytes}});
  Json gpu;
  if (const auto& devices = cuda_devices().devices; !devices.empty()) gpu = devices[0].name;
  Json isas = Json::array();
  for (const Isa isa : usable_isas()) isas.push_back(isa_name(isa));
  return {{"cpu", cpu_model()},
          {"cores", usable_cores()},
          {"caches", caches},
          {"memory_bytes", memory_bytes()},
          {"usable_isas", isas},
          {"isa", isa_name(selected_isa())},
          {"os", operating_system()},
          {"compiler", compiler_text()},
          {"gpu", gpu}};
}

const char* build_commit() { return kBuildCommit; }
const char* build_type() { return LONGHAUL_CLI_BUILD_TYPE; }
const char* version_text() { return LONGHAUL_CLI_VERSION; }
const char* source_folder() { return LONGHAUL_CLI_SOURCE_DIR; }
const char* build_folder() { return LONGHAUL_CLI_BINARY_DIR; }
const char* data_folder() { return LONGHAUL_CLI_DATA_DIR; }

}  // namespace longhaul::cli
