// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// Writes to a temporary file in the target's directory; commit() syncs it and renames it over the target. Destroyed
/// without commit(), it removes the temporary file and leaves the target as it was. Throws System where the operating
/// system refuses and InvalidArgument where the target exists and is no regular file.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  void flush();
  void write_through(const std::byte* data, size_t bytes);
  [[noreturn]] void fail(const char* action) const;

  std::string path_, temporary_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

/// The path that links at the end of `path` lead to, also where nothing is there yet.
std::string follow_links(const std::string& path);

/// The whole of `text`, by an AtomicFile.
void write_text_file(const std::string& path, std::string_view text);

/// Reads at most `max_bytes`; throws System where the file cannot be read, InvalidArgument where it is longer or no
/// regular file.
std::string read_text_file(const std::string& path, size_t max_bytes);

}  // namespace longhaul
