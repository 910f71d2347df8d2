// Ctrl-C leaves no half-written file; a closed pipe is an error to report.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul::cli {

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT end the process, at once or, inside a DeferInterrupts, when that is left.
/// SIGPIPE is ignored, so that a write to a closed pipe fails like any other.
void install_signal_handlers();

/// Around the writing of a file: an interrupt waits until the file stands, or its temporary is removed.
class DeferInterrupts {
 public:
  DeferInterrupts();
  ~DeferInterrupts();
  DeferInterrupts(const DeferInterrupts&) = delete;
  DeferInterrupts& operator=(const DeferInterrupts&) = delete;
};

/// Writes `text` to `path`, whole or not at all.
void write_file(const std::string& path, std::string_view text);

/// Throws an Error that names `option` unless a file can be created at `path`: asked before the work, not after it.
/// Nothing where path is empty or "-".
void check_writable(const std::string& option, const std::string& path);

/// An option and the file it names.
using NamedPath = std::pair<std::string, std::string>;

/// Throws InvalidArgument naming both options where an output is the same file as an input or another output, also
/// through a link: the later one would replace the other. Nothing for paths that are empty or "-".
void check_distinct(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs);

}  // namespace longhaul::cli
