// SPDX-License-Identifier: BSD-3-Clause
// Read access to a checkpoint of format 2 (a folder) or 1 (a file), or to any other HDF5 file with tensors: the list of
// its tensors, and any box of each. Only the HDF5 chunks that contain requested elements are read.
#pragma once

#include <list>
#include <span>

#include "src/checkpoint/manifest.hpp"

namespace gyr {

enum class Expect { checkpoint, tensors };

class StoredCheckpoint {
 public:
  // Reads the metadata. Exit::missing if there is no checkpoint. Exit::data naming the file if it is incomplete: a file
  // is missing or its size differs from the manifest. Expect::tensors also accepts an HDF5 file that is no checkpoint;
  // it then has no header.
  explicit StoredCheckpoint(const std::filesystem::path&, Expect = Expect::checkpoint);

  const std::string& name() const { return name_; }
  bool has_header() const { return has_header_; }
  const CheckpointHeader& header() const { return manifest_.header; }
  const Manifest& manifest() const { return manifest_; }
  const std::vector<StoredTensor>& tensors() const { return manifest_.tensors; }  // tensors in the order of the manifest
  const StoredTensor* find(const std::string& path) const;                        // tensor with this HDF5 path; nullptr if there is none

  // Compares every `of`-th file from `first` on with its checksum before HDF5 opens it, so that ranks can divide the
  // work. Exit::data naming the file, and the tensor if its values are damaged. Files of format 1, whose checksums are
  // inside HDF5, and files without a header are skipped.
  void check_files(int first = 0, int of = 1) const;
  void check_index() const;  // compares index.h5 with its checksum
  // Reads every value, so that HDF5 compares each chunk with the checksum stored next to it. Returns the number of
  // tensors without checksums.
  Index check_chunks() const;

  // Copies the elements of each part's box `from` (in the tensor) to its box `to` (in the row-major `array` at `data`),
  // in the tensor's dtype. Both boxes have the same element order. Exit::data naming file and tensor if the content is
  // damaged, Exit::io.
  void read(const StoredTensor&, std::span<const BoxPair> parts, void* data, const Shape& array) const;
  void read_rows(const StoredTensor&, Index first, Index count, void* data) const;

  Index bytes_read() const { return bytes_read_; }  // bytes of tensor elements read so far
  Index bytes_from_disk() const;                    // bytes read from disk for them, in full chunks

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
  std::vector<std::vector<Piece>> pieces_;  // [tensor index]: the stored boxes of the tensor, each with the index of its file in the manifest
  std::vector<std::size_t> by_path_;
  mutable std::list<Open> open_;  // open files, most recently used first
  mutable Index bytes_read_ = 0, bytes_of_closed_ = 0;
};

// True if a manifest next to the file names it; the file is then compared with the manifest's checksum. Exit::data as
// check_files().
bool check_against_manifest(const std::filesystem::path& file);

}  // namespace gyr
