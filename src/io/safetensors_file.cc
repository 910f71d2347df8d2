#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "io/safetensors.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void throw_errno(const char* action, const std::string& path) {
  throw System(fmt::format("cannot {} '{}': {}", action, path, std::generic_category().message(errno)));
}

}  // namespace

class SafetensorsFile::Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0) throw_errno("open", path);
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) throw_errno("read", path);
    if (!S_ISREG(status.st_mode)) throw InvalidArgument(fmt::format("'{}' is not a regular file", path));
    size_ = static_cast<size_t>(status.st_size);
    if (size_ == 0) return;  // mmap refuses length 0
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address_ == MAP_FAILED) throw_errno("map", path);
  }
  ~Mapping() {
    if (size_ > 0) ::munmap(address_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

 private:
  void* address_ = nullptr;
  size_t size_ = 0;
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), mapping_(std::make_shared<Mapping>(path)), contents_(parse_safetensors(mapping_->bytes(), path)) {}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : contents_.tensors) names.push_back(tensor.name);
  return names;
}

TensorView SafetensorsFile::find(std::string_view name) const {
  for (const NamedTensor& tensor : contents_.tensors) {
    if (tensor.name == name) return tensor.view;
  }
  return {};
}

TensorView SafetensorsFile::get(std::string_view name) const {
  const TensorView view = find(name);
  if (view.given()) return view;
  const std::string present = contents_.tensors.empty() ? "no tensors" : fmt::format("{}", fmt::join(names(), ", "));
  throw InvalidArgument(fmt::format("safetensors file '{}' has no tensor '{}'; it holds {}", path_, name, present));
}

}  // namespace longhaul
