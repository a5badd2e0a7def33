// SPDX-License-Identifier: BSD-3-Clause
// Maps a complete file as read-only memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace gyr {

// Maps a regular file for reading. The bytes are in the page cache, not in the process, so large files are fine. Throws
// the errors of InputFile. If another process shortens the file while it is mapped, access raises SIGBUS, as with any
// mapping.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view text() const { return {data_, size_}; }
  const char* data() const { return data_; }
  std::size_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gyr
