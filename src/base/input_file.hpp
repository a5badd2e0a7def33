// SPDX-License-Identifier: BSD-3-Clause
// A regular file, opened for reading. All files of users and of output folders are opened here. Opening and reading never
// wait, because pipes, devices and folders are refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gyr {

class InputFile {
 public:
  // Exit::missing if the file does not exist, Exit::data if it is not a regular file, Exit::io if it cannot be opened.
  explicit InputFile(const std::filesystem::path&);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::int64_t size() const { return size_; }  // bytes when it was opened
  // Copies at most `most` bytes from `offset` on to `to` and returns their number, which is lower only at the end of the
  // file. Exit::io.
  std::size_t read(std::int64_t offset, char* to, std::size_t most) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

// Text of the file. Throws the errors of InputFile; Exit::data if the file has more than `most` bytes.
std::string text_of_file(const std::filesystem::path&, std::size_t most);
// Text of an optional file: empty if it does not exist, cannot be read or has more than `most` bytes.
std::string text_or_nothing(const std::filesystem::path&, std::size_t most);

}  // namespace gyr
