#include "cli/support/interrupt.h"

#include <fmt/core.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "io/atomic_file.h"
#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

// Lock-free atomics, which a signal handler may touch whichever thread it runs on.
std::atomic<int> deferring{0};
std::atomic<int> waiting_signal{0};

void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void on_signal(int signal) {
  if (deferring.load() > 0) {
    waiting_signal.store(signal);
  } else {
    end_by(signal);
  }
}

}  // namespace

void install_signal_handlers() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit then is an error of the write, and the temporary file goes
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;  // nohup
    action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

DeferInterrupts::DeferInterrupts() { ++deferring; }

DeferInterrupts::~DeferInterrupts() {
  if (--deferring == 0)
    if (const int signal = waiting_signal.exchange(0)) end_by(signal);
}

void write_file(const std::string& path, std::string_view text) {
  const DeferInterrupts defer;
  write_text_file(path, text);
}

void check_writable(const std::string& option, const std::string& path) {
  if (path.empty() || path == "-") return;
  const DeferInterrupts defer;
  try {
    const AtomicFile probe(path);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", option, error.what()));
  }
}

void check_distinct(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs) {
  const auto same = [](const std::string& a, const std::string& b) {
    if (a.empty() || b.empty() || a == "-" || b == "-") return false;
    std::error_code error;  // a path that cannot be resolved is refused by whoever opens it
    if (std::filesystem::equivalent(a, b, error)) return true;
    const auto first = std::filesystem::weakly_canonical(follow_links(a), error),
               second = std::filesystem::weakly_canonical(follow_links(b), error);
    return !error && first == second;
  };
  std::vector<NamedPath> others = inputs;
  for (const NamedPath& output : outputs) {
    for (const NamedPath& other : others)
      if (same(output.second, other.second))
        throw InvalidArgument(fmt::format("{} is '{}', which is the file of {}, but an output needs a file of its own",
                                          output.first, output.second, other.first));
    others.push_back(output);
  }
}

}  // namespace longhaul::cli
