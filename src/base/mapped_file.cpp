// SPDX-License-Identifier: BSD-3-Clause
// Maps a complete file as read-only memory.
#include "src/base/mapped_file.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"

namespace gyr {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const InputFile file(path);
  size_ = std::size_t(file.size());
  if (size_ == 0) return;  // an empty mapping is not allowed, and not needed
  void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
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
