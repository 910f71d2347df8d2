#include "io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "longhaul/error.h"

namespace longhaul {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kMaxLinks = 40;  // Linux follows no more

}  // namespace

std::string follow_links(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path target = path;
  for (int links = 0; links < kMaxLinks && fs::is_symlink(target, error); ++links)
    target = target.parent_path() / fs::read_symlink(target, error);
  return target;
}

void AtomicFile::fail(const char* action) const {
  throw System(fmt::format("cannot {} '{}': {}", action, path_, std::generic_category().message(errno)));
}

AtomicFile::AtomicFile(const std::string& path) : path_(follow_links(path)) {
  namespace fs = std::filesystem;
  if (path.empty()) throw InvalidArgument("the path of a file to write is '', but it must name one");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw InvalidArgument(fmt::format("cannot write '{}': it exists and is not a regular file", path));
  }
  // That it does not exist yet is the ordinary case; a name that is too long would otherwise only fail at the end.
  if (error && status.type() != fs::file_type::not_found) {
    throw System(fmt::format("cannot write '{}': {}", path, error.message()));
  }
  buffer_.reserve(kBufferBytes);
  static std::atomic<uint64_t> files{0};
  const fs::path folder = fs::path(path_).parent_path();
  do {  // the name is not made from the target's, which may be as long as a name can be
    temporary_ = folder / fmt::format("longhaul-{}-{}.tmp", ::getpid(), files++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) fail("write");
  if (fs::exists(status)) (void)::fchmod(fd_, static_cast<mode_t>(status.permissions()) & 0777);  // best effort
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  if (buffer_.size() + bytes > kBufferBytes) flush();
  if (bytes > kBufferBytes) {
    write_through(from, bytes);
  } else if (bytes > 0) {
    buffer_.insert(buffer_.end(), from, from + bytes);
  }
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write_through(const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    data += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  flush();
  if (::fsync(fd_) != 0) fail("write");
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0) fail("write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace");
  temporary_.clear();
}

void write_text_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

std::string read_text_file(const std::string& path, size_t max_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    throw System(fmt::format("cannot open '{}': no such file", path));
  if (error) throw System(fmt::format("cannot open '{}': {}", path, error.message()));
  if (!std::filesystem::is_regular_file(status)) throw InvalidArgument(fmt::format("'{}' is not a regular file", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw System(fmt::format("cannot open '{}': {}", path, std::generic_category().message(errno)));
  std::string text(max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw System(fmt::format("cannot read '{}'", path));
  if (static_cast<size_t>(file.gcount()) > max_bytes) {
    throw InvalidArgument(fmt::format("'{}' is larger than the {} bytes allowed here", path, max_bytes));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace longhaul
