// SPDX-License-Identifier: BSD-3-Clause
// One file of a checkpoint: boxes of tensors, each a dataset that says of which tensor it is and where it lies there. A box that is a
// whole tensor lies under the tensor's path, others under PATH/0, PATH/1 and so on.
#pragma once

#include <map>
#include <optional>

#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/manifest.hpp"

namespace gyr {

// How a file is written.
struct ShardOptions {
  int deflate = 0;     // 1 to 9: compressed
  bool verify = true;  // read again before it counts as written
};

class ShardWriter {
 public:
  // Exit::io where the file cannot be made.
  ShardWriter(const std::filesystem::path& file, const CheckpointHeader&, const ShardOptions&);

  // The next rows of `box` of a tensor, row-major in its dtype; `number` is the tensor's in the manifest. A box comes whole before the
  // next one begins. Exit::io.
  void write(const StoredTensor&, std::size_t number, const Box& box, Index rows, const void* data);
  // Brings the file to disk and says what it holds. With `verify` every number was read again through HDF5 and is what memory held.
  ManifestFile finish();

 private:
  void begin(const StoredTensor&, std::size_t number, const Box&);
  void find_boxes();        // where each lies
  void take_sums();         // of the file as it lies there
  void read_again() const;  // Exit::io where a number is not what it was

  std::filesystem::path path_;
  ShardOptions options_;
  std::optional<hdf5::File> file_;
  std::optional<hdf5::Dataset> dataset_;
  std::optional<Checksum> sum_;  // of the box under way
  Index rows_done_ = 0;
  std::map<std::size_t, int> boxes_of_;  // by tensor
  ManifestFile entry_;
};

// Rows of a box of this type and shape to hand over at a time: about `bytes`, in whole chunks so that none is written twice.
Index slab_rows(DType, const Shape& box, Index bytes = Index(32) << 20);

}  // namespace gyr
