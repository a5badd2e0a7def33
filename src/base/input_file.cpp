// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {
constexpr std::size_t read_ahead = std::size_t(64) << 10;
}

// Without O_NONBLOCK, opening a pipe waits until another process writes to it.
InputFile::InputFile(const std::filesystem::path& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    fail(absent ? Exit::missing : Exit::io, "{}: cannot be opened: {}", path.string(), std::strerror(error));
  }
  struct stat info {};
  const bool known = ::fstat(descriptor_, &info) == 0;
  const int error = errno;
  if (known && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    return;
  }
  ::close(descriptor_);
  require(known, Exit::io, "{}: {}", path.string(), std::strerror(error));
  require(!S_ISDIR(info.st_mode), Exit::data, "{}: is a folder, not a file", path.string());
  fail(Exit::data, "{}: is not a regular file but a pipe or a device; copy its content to a file, and name that file", path.string());
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(std::exchange(other.size_, 0)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::size_t InputFile::read(std::int64_t offset, char* to, std::size_t most) const {
  std::size_t done = 0;
  while (done < most) {
    const ssize_t n = ::pread(descriptor_, to + done, most - done, offset + off_t(done));
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, Exit::io, "{}: reading failed at byte {}: {}", path_.string(), offset + std::int64_t(done), std::strerror(errno));
    if (n == 0) break;
    done += std::size_t(n);
  }
  return done;
}

std::string text_of_file(const std::filesystem::path& path, std::size_t most) {
  const InputFile file(path);
  require(std::size_t(file.size()) <= most, Exit::data, "{}: has {} bytes; the maximum for such a file is {}", path.string(), file.size(), most);
  std::string text(std::max(std::size_t(file.size()) + 1, read_ahead), '\0');
  std::size_t done = file.read(0, text.data(), text.size());
  while (done == text.size() && done <= most) {  // it grows, or its size is not known, as in /proc
    text.resize(done + read_ahead);
    done += file.read(std::int64_t(done), text.data() + done, read_ahead);
  }
  text.resize(std::min(done, most));
  return text;
}

std::string text_or_nothing(const std::filesystem::path& path, std::size_t most) {
  try {
    return text_of_file(path, most);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace gyr
