// SPDX-License-Identifier: BSD-3-Clause
// One shard file of a checkpoint: boxes of tensors, each an HDF5 dataset whose attributes name the tensor and the box's
// offset in it. A box that covers the full tensor is stored under the tensor's path, other boxes under PATH/0, PATH/1
// and so on.
#pragma once

#include <map>
#include <optional>

#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/manifest.hpp"

namespace gyr {

// Options for writing a shard file.
struct ShardOptions {
  int deflate = 0;     // deflate (gzip) level 1 to 9; 0: no compression
  bool verify = true;  // true: read the file back before it counts as written
};

class ShardWriter {
 public:
  // Exit::io if the file cannot be created.
  ShardWriter(const std::filesystem::path& file, const CheckpointHeader&, const ShardOptions&);

  // Appends rows of `box` of a tensor, row-major in its dtype. `number`: index of the tensor in the manifest. A box
  // must be complete before the next one begins. Exit::io.
  void write(const StoredTensor&, std::size_t number, const Box& box, Index rows, const void* data);
  // Syncs the file to disk and returns its manifest entry. With `verify`, all values are read back through HDF5 and
  // compared with the checksums taken while writing.
  ManifestFile finish();

 private:
  void begin(const StoredTensor&, std::size_t number, const Box&);
  void find_boxes();        // finds the byte ranges of each box in the file
  void take_sums();         // checksums of the file on disk and of each box in it
  void read_again() const;  // Exit::io if a value differs from what was written

  std::filesystem::path path_;
  ShardOptions options_;
  std::optional<hdf5::File> file_;
  std::optional<hdf5::Dataset> dataset_;
  std::optional<Checksum> sum_;  // running checksum of the values written to the current box
  Index rows_done_ = 0;
  std::map<std::size_t, int> boxes_of_;  // number of boxes so far, by tensor index
  ManifestFile entry_;
};

// Number of rows to pass to write() at a time: about `bytes`, in full chunks so that no chunk is written twice.
Index slab_rows(DType, const Shape& box, Index bytes = Index(32) << 20);

}  // namespace gyr
