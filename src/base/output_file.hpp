// SPDX-License-Identifier: BSD-3-Clause
// A file that appears completely or not at all: written under a temporary name, flushed to disk, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gyr {

// Every failure (full disk, quota, read-only folder) is an Error with Exit::io that names file, byte and reason; a
// folder that does not exist is Exit::missing. Unless commit() has returned, the destructor removes the temporary file.
class OutputFile {
 public:
  // Creates the temporary file FINAL.tmp; one left over from a killed run is overwritten. Symbolic links of either name
  // are replaced, and their targets stay unchanged. Exit::io if the name is that of a folder, a device or a pipe.
  explicit OutputFile(const std::filesystem::path& final_path);
  // Opens the temporary file that another rank has created, for write_at(). Never removes or renames it.
  static OutputFile join(const std::filesystem::path& final_path);
  static std::filesystem::path temporary(const std::filesystem::path& final_path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void append(std::string_view bytes);                               // appends bytes through a buffer in memory
  void write_at(std::int64_t offset, std::string_view bytes) const;  // writes without a buffer; the range may be past the end
  std::int64_t appended() const { return appended_; }

  void flush();    // afterwards, other processes can read everything appended
  void sync();     // flush, and wait until it is on disk
  void publish();  // flush and rename: other processes find the complete file, which a failure of the machine may lose
  void commit();   // sync, rename to the final name, and make the rename durable

 private:
  OutputFile(const std::filesystem::path& final_path, bool owner);
  void begin_write_back();
  [[noreturn]] void failed(std::string_view doing, std::int64_t offset, int error) const;

  std::filesystem::path final_, temporary_;
  bool owner_;
  int fd_ = -1;
  std::string buffer_;
  std::int64_t appended_ = 0, written_back_ = 0;
};

// Exit::usage if there is something of this name, for commands that replace a file only with --overwrite. An empty name is
// accepted.
void check_new(const std::filesystem::path& path);
// Removes a file that is to be replaced, if it exists. Exit::io.
void remove_file(const std::filesystem::path& path);
// Flushes a file to disk that other processes have written (fsync); Exit::io.
void sync_file(const std::filesystem::path& file);

// Makes a rename or removal inside `folder` durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace gyr
