// What a person reads: text and tables on standard output, progress on a terminal's standard error.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::cli {

/// A mistake in the command line itself: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Fills closed standard streams, so that no file opened later becomes one of them and takes the text. Reading and
/// writing them still fails. Throws System where that cannot be done.
void fill_closed_streams();

/// Writes to standard output (to standard error after divert_text()). Never throws: a command's files are worth more
/// than its text, so a closed pipe or a full disk waits for check_output().
void print_text(std::string_view text);
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  print_text(fmt::format(format, std::forward<Args>(args)...) + "\n");
}
/// With --json -, standard output belongs to the JSON.
void divert_text();
/// Writes to standard output, also after divert_text(); otherwise as print_text().
void print_result(std::string_view text);
/// Shows what was printed so far; never throws.
void flush_text();
/// Flushes, and throws System where anything printed did not reach standard output.
void check_output();
/// Writes to standard error. Where that is closed or full, nobody can be told, and the exit status must still be right.
void complain(std::string_view text);

/// Columns as wide as their cells; the first column to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row);
  /// All columns to the left: for words.
  Table& words() {
    words_ = true;
    return *this;
  }
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  bool words_ = false;
};

/// A bar on standard error, only where that is a terminal, only after half a second. Erased by the destructor.
class Progress {
 public:
  Progress(std::string label, double total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void set(double done);
  void label(std::string text);

 private:
  void draw();
  std::string label_;
  double total_, done_ = 0;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

/// "12.3 %", "1.85 GiB", "3.2 ms": few digits, for tables.
std::string percent(double share);
std::string bytes_text(double bytes);
std::string duration_text(double seconds);
/// Three significant digits, without an exponent where one can do without.
std::string short_number(double value);

}  // namespace longhaul::cli
