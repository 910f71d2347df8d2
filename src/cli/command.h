// How a command joins the program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace longhaul::cli {

/// What the command line asked for: filled in while it is parsed, run afterwards.
struct Invocation {
  std::string command_line;  ///< as the user typed it, for result files
  std::string json;          ///< --json
  std::function<int()> run;  ///< returns the exit status
};

/// Adds --json, the examples, and what to run, to one command.
void finish_command(CLI::App& command, Invocation& invocation, const std::string& examples, std::function<int()> run);

/// A finite number from low to high; CLI::Range lets NaN through.
CLI::Validator number_from(double low, double high = 1e30);
/// A whole number in decimal digits from low to high, for transform(); the help shows "low..high". CLI11's own reading
/// cuts a larger number to the type's limit without a word.
CLI::Validator whole_number(int64_t low, int64_t high);
inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
/// The path of a file or folder, as `what` says: neither empty nor "-", which only --json takes.
CLI::Validator path_of(const std::string& what);

void add_info(CLI::App& program, Invocation& invocation);
void add_attend(CLI::App& program, Invocation& invocation);
void add_bench(CLI::App& program, Invocation& invocation);
void add_calibrate(CLI::App& program, Invocation& invocation);
void add_demo(CLI::App& program, Invocation& invocation);
void add_report(CLI::App& program, Invocation& invocation);
void add_verify(CLI::App& program, Invocation& invocation);

inline constexpr int kFine = 0, kFailed = 1, kWrongUsage = 2;

}  // namespace longhaul::cli
