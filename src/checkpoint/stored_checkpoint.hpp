// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint as it lies on disk, of format 2 (a folder) or 1 (a file), or any other HDF5 file with tensors in it: which tensors there
// are, and any box of any of them. Only the bytes asked for are read.
#pragma once

#include <list>
#include <span>

#include "src/checkpoint/manifest.hpp"

namespace gyr {

enum class Expect { checkpoint, tensors };

class StoredCheckpoint {
 public:
  // Reads what the checkpoint says of itself. Exit::missing where there is none; Exit::data naming the file where it is not whole: a file
  // is missing or has another size than the manifest says. `tensors`: an HDF5 file that is no checkpoint will do, and then has no header.
  explicit StoredCheckpoint(const std::filesystem::path&, Expect = Expect::checkpoint);

  const std::string& name() const { return name_; }
  bool has_header() const { return has_header_; }
  const CheckpointHeader& header() const { return manifest_.header; }
  const Manifest& manifest() const { return manifest_; }
  const std::vector<StoredTensor>& tensors() const { return manifest_.tensors; }  // by path
  const StoredTensor* find(const std::string& path) const;                        // null where there is none

  // Compares files with their checksums, before HDF5 sees them: every `of`th from `first` on, so that ranks may share the work.
  // Exit::data naming the file, and the tensor where its numbers are damaged. Files of format 1 have none; theirs lie in HDF5.
  void check_files(int first = 0, int of = 1) const;
  void check_index() const;  // the same of the view for people
  // Reads every number: HDF5 compares each chunk with the checksum that lies beside it in the file. How many tensors have none.
  Index check_chunks() const;

  // The elements of each part's `from` in a tensor become those of `to` in the row-major `array` at `data`, in the tensor's dtype. Both
  // have the same order. Exit::data naming file and tensor where the content is damaged, Exit::io.
  void read(const StoredTensor&, std::span<const BoxPair> parts, void* data, const Shape& array) const;
  void read_rows(const StoredTensor&, Index first, Index count, void* data) const;

  Index bytes_read() const { return bytes_read_; }  // of numbers, so far
  Index bytes_from_disk() const;                    // that took, chunks being read whole

 private:
  struct Piece {
    std::size_t file;
    const StoredBox* box;
  };
  struct Open {
    std::size_t number;
    hdf5::File file;
  };
  void open_folder();
  void open_file(Expect);
  const hdf5::File& file(std::size_t number) const;

  std::filesystem::path path_;
  std::string name_;
  bool has_header_ = true;
  Manifest manifest_;
  std::vector<std::vector<Piece>> pieces_;  // by tensor
  std::vector<std::size_t> by_path_;
  mutable std::list<Open> open_;  // most recently used first
  mutable Index bytes_read_ = 0, bytes_of_closed_ = 0;
};

// Whether a manifest lies beside the file and names it; then the file is compared with its checksum there. Exit::data as check_files.
bool check_against_manifest(const std::filesystem::path& file);

}  // namespace gyr
