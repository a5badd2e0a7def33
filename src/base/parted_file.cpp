// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/parted_file.hpp"

#include <string>

#include "src/base/mapped_file.hpp"

namespace gyr {

namespace {

std::filesystem::path part_of(std::filesystem::path path, int rank) { return rank > 0 ? path += ".part" + std::to_string(rank) : path; }

}  // namespace

PartedFile::PartedFile(const std::filesystem::path& path, int rank)
    : path_(path), part_path_(part_of(path, rank)), first_(rank == 0), file_(part_path_) {}

void PartedFile::assemble(std::int64_t offset) const {
  if (first_) return;
  auto full = OutputFile::join(path_);
  full.write_at(offset, MappedFile(OutputFile::temporary(part_path_)).text());
  full.sync();
}

}  // namespace gyr
