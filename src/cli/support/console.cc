#include "cli/support/console.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "longhaul/error.h"

namespace longhaul::cli {
namespace {

bool text_diverted = false;
// The errno of the first write to standard output that failed.
int output_error = 0;

void note_output(bool written) {
  if (!written && output_error == 0) output_error = errno != 0 ? errno : EIO;
}

// Terminal columns of UTF-8 text without wide characters: every byte that does not continue a character.
size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& cell, size_t width, bool left) {
  const std::string space(width - columns(cell), ' ');
  return left ? cell + space : space + cell;
}

}  // namespace

void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free number, hence this one. The mode is the wrong one for output: a result must not vanish in
    // silence.
    if (::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
      throw System(fmt::format("cannot open '/dev/null' for a closed standard stream: {}", std::strerror(errno)));
  }
}

void print_text(std::string_view text) { text_diverted ? complain(text) : print_result(text); }

void divert_text() { text_diverted = true; }

void print_result(std::string_view text) {
  if (output_error != 0) return;  // text with a hole would be worse than text that ends
  errno = 0;
  note_output(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

void flush_text() {
  errno = 0;
  note_output(std::fflush(stdout) == 0);
}

void check_output() {
  flush_text();
  if (output_error != 0) throw System(fmt::format("cannot write to standard output: {}", std::strerror(output_error)));
}

void complain(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void Table::add(std::vector<std::string> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<size_t> width(header_.size());
  for (size_t c = 0; c < width.size(); ++c) {
    width[c] = columns(header_[c]);
    for (const auto& row : rows_) width[c] = std::max(width[c], columns(row[c]));
  }
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t c = 0; c < cells.size(); ++c) out += (c ? "  " : "") + padded(cells[c], width[c], words_ || c == 0);
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  };
  line(header_);
  std::vector<std::string> rule;
  for (const size_t w : width) rule.emplace_back(w, '-');
  line(rule);
  for (const auto& row : rows_) line(row);
  return text;
}

Progress::Progress(std::string label, double total)
    : label_(std::move(label)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_) complain("\r\033[K");
}

void Progress::set(double done) {
  done_ = done;
  draw();
}

void Progress::label(std::string text) {
  label_ = std::move(text);
  draw();
}

void Progress::draw() {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - start_ < 500ms || now - last_ < 100ms) return;
  last_ = now;
  drawn_ = true;
  winsize size{};
  const int wide = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  const double share = total_ > 0 ? std::clamp(done_ / total_, 0.0, 1.0) : 0.0;
  const int cells = std::clamp(wide - static_cast<int>(columns(label_)) - 24, 5, 40);
  std::string bar;
  for (int i = 0; i < cells; ++i) bar += i < share * cells ? "█" : "░";
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const std::string left = share > 0.02 ? fmt::format(" {} left", duration_text(elapsed / share - elapsed)) : "";
  complain(fmt::format("\r\033[K{} {} {:3.0f} %{}", label_, bar, 100 * share, left));
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string bytes_text(double bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return fmt::format("{} {}", short_number(bytes), units[unit]);
}

std::string duration_text(double seconds) {
  if (seconds < 1e-3) return short_number(seconds * 1e6) + " µs";
  if (seconds < 1) return short_number(seconds * 1e3) + " ms";
  if (seconds < 120) return short_number(seconds) + " s";
  return fmt::format("{:.0f} min", seconds / 60);
}

std::string short_number(double value) {
  const double size = std::fabs(value);
  if (size == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  if (size >= 1e7 || size < 1e-4) return fmt::format("{:.2e}", value);
  const int decimals = std::clamp(2 - static_cast<int>(std::floor(std::log10(size))), 0, 6);
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace longhaul::cli
