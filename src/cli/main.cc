// longhaul: see, measure and calibrate attention that skips.
#include <cctype>
#include <charconv>
#include <exception>
#include <new>
#include <string>

#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/interrupt.h"
#include "cli/support/machine.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

// For a shell, in single quotes.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string joined_arguments(int argc, char** argv) {
  std::string text = "longhaul";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$*?<>|&;()") == std::string::npos;
    text += " " + (plain ? word : quoted(word));
  }
  return text;
}

// "longhaul bench attention", as far as the command line named commands.
std::string command_path(const CLI::App& program) {
  std::string path = "longhaul";
  const CLI::App* at = &program;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  return path;
}

// One line, lower case at the start, without a full stop at the end.
std::string sentence(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  if (text.size() > 1 && std::isupper(static_cast<unsigned char>(text[0])) &&
      std::islower(static_cast<unsigned char>(text[1])))
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

int report_error(const std::string& where, const std::string& what, int status) {
  complain(fmt::format("{}: {}\n", where, sentence(what)));
  return status;
}

int run_program(int argc, char** argv) {
  CLI::App program("Attention that skips, on long contexts: try it, measure it, calibrate it.\n", "longhaul");
  Invocation invocation;
  invocation.command_line = joined_arguments(argc, argv);
  program.set_version_flag("--version", std::string("longhaul ") + version_text());
  program.require_subcommand(0, 1);
  add_info(program, invocation);
  add_demo(program, invocation);
  add_attend(program, invocation);
  add_calibrate(program, invocation);
  add_bench(program, invocation);
  add_verify(program, invocation);
  add_report(program, invocation);
  program.footer("longhaul COMMAND --help shows the options of a command, with examples.");
  try {
    program.parse(argc, argv);
    if (!invocation.run) {
      const bool bare = program.get_subcommands().empty();
      if (!bare) throw UsageError("a topic is missing; the one topic is attention");
      complain(program.help());
      return kWrongUsage;
    }
    if (invocation.json == "-") divert_text();
    const int status = invocation.run();
    check_output();
    return status;
  } catch (const CLI::CallForVersion&) {
    say("longhaul {}", version_text());
  } catch (const CLI::Success&) {  // --help
    print_text(program.help());    // that of the command asked for, with its full name
  } catch (const CLI::ParseError& error) {
    return report_error(command_path(program), error.what(), kWrongUsage);
  } catch (const UsageError& error) {
    return report_error(command_path(program), error.what(), kWrongUsage);
  } catch (const std::bad_alloc&) {
    return report_error(command_path(program), "there is not enough memory for this job", kFailed);
  } catch (const std::exception& error) {
    return report_error(command_path(program), error.what(), kFailed);
  }
  check_output();
  return kFine;
}

}  // namespace

CLI::Validator number_from(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
        return high < 1e30 || value > high ? fmt::format("{} is not a number from {} to {}", text, low, high)
                                           : fmt::format("{} is not a number from {} up", text, low);
      },
      "", "number");
}

CLI::Validator whole_number(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        int64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [next, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && next == end && value >= low && value <= high) {
          text = std::to_string(value);  // CLI11 would read 010 as eight
          return "";
        }
        const bool unlimited = high == kNoLimit && error != std::errc::result_out_of_range;
        return fmt::format("{} is not a whole number from {} {}", text, low,
                           unlimited ? std::string("up") : fmt::format("to {}", high));
      },
      fmt::format("{}..{}", low, high == kNoLimit ? std::string() : std::to_string(high)), "whole number");
}

CLI::Validator path_of(const std::string& what) {
  return CLI::Validator(
      [what](const std::string& path) -> std::string {
        if (!path.empty() && path != "-") return "";
        return fmt::format("'{}' is not allowed, only the path of a {} (one called - is ./-)", path, what);
      },
      "", "path");
}

void finish_command(CLI::App& command, Invocation& invocation, const std::string& examples, std::function<int()> run) {
  command.add_option("--json", invocation.json, "Also write the result as JSON to this file (-: to standard output)")
      ->type_name("FILE")
      ->check([](const std::string& path) {
        return path.empty() ? "'' is not allowed, only the path of a file, or - for standard output" : "";
      });
  command.footer("Examples:\n" + examples);
  command.callback([&invocation, run = std::move(run)] {
    invocation.run = [&invocation, run] {
      check_writable("--json", invocation.json);
      return run();
    };
  });
}

}  // namespace longhaul::cli

int main(int argc, char** argv) {
  longhaul::cli::install_signal_handlers();
  try {
    longhaul::cli::fill_closed_streams();
    return longhaul::cli::run_program(argc, argv);
  } catch (const std::exception& error) {  // where no command is known, or the text of --help could not be written
    return longhaul::cli::report_error("longhaul", error.what(), longhaul::cli::kFailed);
  }
}
