// SPDX-License-Identifier: BSD-3-Clause
// Maps a complete file as read-only memory.
#include "src/base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.hpp"

namespace gyr {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    fail(absent ? Exit::missing : Exit::io, "{}: cannot be opened: {}", path.string(), std::strerror(error));
  }
  struct stat info {};
  require(::fstat(file.fd, &info) == 0, Exit::io, "{}: {}", path.string(), std::strerror(errno));
  require(!S_ISDIR(info.st_mode), Exit::data, "{}: is a folder, not a file", path.string());
  require(S_ISREG(info.st_mode), Exit::data, "{}: is not a regular file", path.string());
  size_ = std::size_t(info.st_size);
  if (size_ == 0) return;  // an empty mapping is not allowed, and not needed
  void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  require(memory != MAP_FAILED, Exit::io, "{}: cannot map {} bytes: {}", path.string(), size_, std::strerror(errno));
  data_ = static_cast<const char*>(memory);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace gyr
