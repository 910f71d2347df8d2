#include "longhaul/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "core/environment.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr std::string_view kPrefix = "LONGHAUL_";
constexpr std::string_view kTestPrefix = "LONGHAUL_TEST_";  // of the project's own tests

struct Variable {
  const char* name;
  std::string_view meaning, allowed, default_value;
  void (*check)();  // throws where the value in the environment is not allowed
};

constexpr std::array kVariables{
    Variable{"LONGHAUL_THREADS", "Threads of a call that does not say how many", "1 to 1024",
             "all cores this process may run on", [] { threads_setting(); }},
    Variable{"LONGHAUL_ISA", "Instruction set of the CPU kernels", "portable, avx2, avx512, amx",
             "the fastest that this machine and this build have", [] { isa_setting(); }},
    Variable{"LONGHAUL_MULTIPROCESSORS", "Multiprocessors of a GPU that a kernel may take, to leave some to others",
             "2 to 1024", "all", [] { multiprocessors_setting(); }},
};

std::string_view read(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

std::optional<int> number(const char* name, int least, int most) {
  const std::string_view text = read(name);
  if (text.empty()) {
    return std::nullopt;
  }
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw InvalidArgument(
        fmt::format("{} is '{}', but it must be a whole number from {} to {}", name, text, least, most));
  }
  return value;
}

}  // namespace

std::optional<int> threads_setting() { return number("LONGHAUL_THREADS", 1, kMaxThreads); }
std::optional<int> multiprocessors_setting() { return number("LONGHAUL_MULTIPROCESSORS", 2, kMaxMultiprocessors); }

std::optional<Isa> isa_setting() {
  const std::string_view text = read("LONGHAUL_ISA");
  if (text.empty()) {
    return std::nullopt;
  }
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (isa_name(isa) == text) {
      return isa;
    }
  }
  throw InvalidArgument(fmt::format("LONGHAUL_ISA is '{}', but allowed are portable, avx2, avx512 and amx", text));
}

std::vector<Setting> settings() {
  std::vector<Setting> result;
  for (const Variable& variable : kVariables) {
    const std::string_view text = read(variable.name);
    Setting setting{variable.name,
                    variable.meaning,
                    variable.allowed,
                    variable.default_value,
                    std::string(text.empty() ? variable.default_value : text),
                    !text.empty(),
                    {}};
    try {
      variable.check();
    } catch (const Error& error) {
      setting.error = error.what();
    }
    result.push_back(std::move(setting));
  }
  return result;
}

std::vector<std::string> unknown_settings() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (name.starts_with(kPrefix) && !name.starts_with(kTestPrefix) &&
        std::none_of(kVariables.begin(), kVariables.end(), [&](const Variable& known) { return known.name == name; })) {
      result.emplace_back(name);
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace longhaul
