// SPDX-License-Identifier: BSD-3-Clause
// 64-bit XXH3 checksums of memory and files, as `xxhsum -H3` prints them.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "src/base/input_file.hpp"
#include "src/hdf5/file.hpp"

struct XXH3_state_s;

namespace gyr {

class Checksum {
 public:
  Checksum();
  void add(const void* bytes, Index count);
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s*) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::uint64_t checksum(const void* bytes, Index count);

// Checksum as 16 hexadecimal digits, and the inverse. sum_of_hex: Exit::data naming `origin` for any other text.
std::string hex(std::uint64_t sum);
std::uint64_t sum_of_hex(const std::string& digits, const std::string& origin);

// Checksums of a file on disk, read from front to end. Throws the errors of InputFile.
class SummedFile {
 public:
  explicit SummedFile(const std::filesystem::path& file) : file_(file), name_(file.string()) {}

  const std::string& name() const { return name_; }
  Index bytes() const { return file_.size(); }
  std::uint64_t sum() const;                                     // checksum of the full file
  std::uint64_t sum(std::span<const hdf5::Extent> parts) const;  // checksum of these byte ranges, concatenated; stops at the end of the file
  // Checksums of the full file and of each list of byte ranges, in one pass over the file. The ranges of a list must
  // ascend.
  struct Sums {
    std::uint64_t total;
    std::vector<std::uint64_t> lists;
  };
  Sums sums(std::span<const std::vector<hdf5::Extent>> lists) const;

 private:
  template <class Visit>
  void blocks(const hdf5::Extent& part, Visit&& visit) const;

  InputFile file_;
  std::string name_;
};

}  // namespace gyr
