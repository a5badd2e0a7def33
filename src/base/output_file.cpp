// SPDX-License-Identifier: BSD-3-Clause
// A file that appears completely or not at all: written under a temporary name, flushed to disk, then renamed.
#include "src/base/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.hpp"
#include "src/base/file_system.hpp"

namespace gyr {
namespace {

constexpr std::size_t buffer_bytes = std::size_t(1) << 20;
constexpr std::int64_t write_back_bytes = std::int64_t(16) << 20;

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

}  // namespace

std::filesystem::path OutputFile::temporary(const std::filesystem::path& final_path) { return std::filesystem::path(final_path) += ".tmp"; }

OutputFile::OutputFile(const std::filesystem::path& final_path) : OutputFile(final_path, true) {}

OutputFile OutputFile::join(const std::filesystem::path& final_path) { return OutputFile(final_path, false); }

OutputFile::OutputFile(const std::filesystem::path& final_path, bool owner) : final_(final_path), temporary_(temporary(final_path)), owner_(owner) {
  std::error_code ignored;
  require(!owner || !std::filesystem::is_directory(final_, ignored), Exit::io, "{}: is a folder, but a file is to be written; choose another name",
          final_.string());
  const std::filesystem::file_status there = std::filesystem::status(final_, ignored);
  require(!owner || !std::filesystem::exists(there) || std::filesystem::is_regular_file(there), Exit::io,
          "{}: is a device or a pipe, which must not be replaced by a file; choose another name", final_.string());
  const int create = owner ? O_CREAT | O_TRUNC : 0;
  const std::filesystem::file_status left = std::filesystem::symlink_status(temporary_, ignored);
  if (owner && std::filesystem::exists(left) && !std::filesystem::is_regular_file(left) && !std::filesystem::is_directory(left))
    ::unlink(temporary_.c_str());  // a link, or a pipe, which may have no reader
  // the umask may clear permission bits
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | create, 0666);
  if (fd_ < 0) {
    const int error = errno;
    fail(error == ENOENT ? Exit::missing : Exit::io, "{}: cannot be created: {}; the folder must exist and be writable", temporary_.string(),
         why_not_opened(error));
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : final_(std::move(other.final_)), temporary_(std::move(other.temporary_)), owner_(std::exchange(other.owner_, false)),
      fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)), appended_(other.appended_), written_back_(other.written_back_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (owner_) ::unlink(temporary_.c_str());
}

void OutputFile::failed(std::string_view doing, std::int64_t offset, int error) const {
  fail(Exit::io, "{}: {} failed at byte {}: {}; nothing was kept, {}", temporary_.string(), doing, offset, std::strerror(error),
       is_full(error) ? "free some space or choose another folder" : "choose another folder");
}

void OutputFile::append(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() >= buffer_bytes) {
    write_at(appended_, bytes);
  } else {
    buffer_.append(bytes);
  }
  appended_ += std::int64_t(bytes.size());
  begin_write_back();
}

// Starts writing to disk early, so that sync() finds little left to wait for. This is only a hint; sync() gives the
// guarantee.
void OutputFile::begin_write_back() {
  if (appended_ - written_back_ < write_back_bytes) return;
  ::sync_file_range(fd_, written_back_, appended_ - written_back_, SYNC_FILE_RANGE_WRITE);
  written_back_ = appended_;
}

void OutputFile::write_at(std::int64_t offset, std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      failed("writing", offset, errno);
    }
    if (written == 0) failed("writing", offset, ENOSPC);
    bytes.remove_prefix(std::size_t(written));
    offset += written;
  }
}

void OutputFile::flush() {
  write_at(appended_ - std::int64_t(buffer_.size()), buffer_);
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  if (::fsync(fd_) != 0) failed("flushing", appended_, errno);
}

void OutputFile::publish() {
  flush();
  if (::close(std::exchange(fd_, -1)) != 0) failed("closing", appended_, errno);  // network file systems report an exceeded quota here
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) failed("renaming", appended_, errno);
  owner_ = false;
}

void OutputFile::commit() {
  sync();
  publish();
  sync_folder(folder_of(final_));
}

void check_new(const std::filesystem::path& path) {
  std::error_code error;
  require(path.empty() || !std::filesystem::exists(path, error), Exit::usage, "{}: exists; choose another name, or give --overwrite to replace it",
          path.string());
}

void remove_file(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  require(!error, Exit::io, "{}: cannot be replaced: {}", path.string(), error.message());
}

void sync_file(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0, Exit::io, "{}: cannot be opened: {}", file.string(), std::strerror(errno));
  const int failed = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  require(failed == 0, Exit::io, "{}: flushing failed: {}", file.string(), std::strerror(failed));
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(fd >= 0, Exit::io, "{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  const int failed = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;  // some file systems have nothing to flush and return EINVAL
  ::close(fd);
  require(failed == 0, Exit::io, "{}: flushing the folder failed: {}", folder.string(), std::strerror(failed));
}

}  // namespace gyr
