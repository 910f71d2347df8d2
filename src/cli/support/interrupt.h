// Ctrl-C leaves no half-written file; a closed pipe is an error to report.
#pragma once

#include <string>
#include <string_view>

namespace longhaul::cli {

/// SIGINT, SIGTERM and SIGHUP end the process, at once or, inside a DeferInterrupts, when that is left. SIGPIPE is
/// ignored, so that a write to a closed pipe fails like any other.
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

}  // namespace longhaul::cli
