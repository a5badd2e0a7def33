// SPDX-License-Identifier: BSD-3-Clause
// Block files: START-END.hdf5 holds the rows from START to before END of a long list. A block appears completely or not
// at all, names the hash of the settings that it depends on, and is never written twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "src/hdf5/table_file.hpp"

namespace gyr::retro {

class Blocks {
 public:
  // Rows [0, total) in blocks of `size` rows, the last one smaller. digits: those of the numbers in file names; 0: as many as
  // the number of all rows has.
  Blocks(std::filesystem::path folder, std::int64_t total, std::int64_t size, std::size_t digits = 0)
      : folder_(std::move(folder)), total_(total), size_(size), digits_(digits > 0 ? digits : std::to_string(total).size()) {}

  std::int64_t count() const { return (total_ + size_ - 1) / size_; }
  std::int64_t first(std::int64_t block) const { return block * size_; }
  std::int64_t last(std::int64_t block) const { return std::min(total_, (block + 1) * size_); }
  std::int64_t all_rows() const { return total_; }
  std::int64_t rows(std::int64_t block) const { return last(block) - first(block); }
  std::filesystem::path file(std::int64_t block) const;
  bool exists(std::int64_t block) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  std::int64_t total_, size_;
  std::size_t digits_;
};

// Writes a file of tables next to `path`, flushes it to disk and renames it. The file records `hash`. Exit::io.
// Tests kill the process at the fault points retro-begun, retro-filled, retro-written and retro-renamed of `rank`. Their
// step is the number of files that this process has written before.
void write_tables(const std::filesystem::path& path, const std::string& hash, int rank, const std::function<void(hdf5::TableWriter&)>& fill);
// Opens a file that write_tables has written. Exit::data unless it records `hash`.
hdf5::TableReader open_tables(const std::filesystem::path& path, const std::string& hash);

// Creates a folder and those above it. Exit::io.
void make_folder(const std::filesystem::path& folder);

}  // namespace gyr::retro
