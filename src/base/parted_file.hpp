// SPDX-License-Identifier: BSD-3-Clause
// An output file that several ranks write together: each rank appends one contiguous part, and the parts follow in the
// order of the ranks. Rank 0 writes directly into the temporary file, because its part comes first. Every other rank
// writes a part file, which it copies to its place once the sizes of all parts are known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "src/base/output_file.hpp"

namespace gyr {

class PartedFile {
 public:
  // Errors of OutputFile, also of the other functions.
  PartedFile(const std::filesystem::path& path, int rank);

  void append(std::string_view bytes) { file_.append(bytes); }
  std::int64_t appended() const { return file_.appended(); }  // bytes of this rank's part
  void flush() { file_.flush(); }
  // Copies this rank's part to byte `offset`, the size of all earlier parts. All ranks have flushed theirs before.
  void assemble(std::int64_t offset) const;
  OutputFile& file() { return file_; }  // on rank 0 the complete file, to sync and commit

 private:
  std::filesystem::path path_, part_path_;
  bool first_;
  OutputFile file_;
};

}  // namespace gyr
