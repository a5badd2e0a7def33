// SPDX-License-Identifier: BSD-3-Clause
// One process writes a checkpoint, tensor by tensor, a block of rows at a time. Nothing of it is seen until commit.
#pragma once

#include <optional>

#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/header.hpp"
#include "src/data/output_file.hpp"

namespace gyr {

class CheckpointWriter {
 public:
  // Exit::io where the folder cannot be made or has no room for `tensors`.
  CheckpointWriter(const std::filesystem::path& target, const CheckpointHeader&, const std::vector<StoredTensor>& tensors);

  // Rows [first, first + count) of a tensor, row-major in its dtype. Tensors come one after the other, rows in order.
  void write(const StoredTensor&, Index first, Index count, const void* rows);
  // Every tensor must have been written whole. Brings the file to disk, looks at it again and gives it its name.
  void commit();

  Index bytes() const { return bytes_; }  // that the tensors take

 private:
  std::filesystem::path target_;
  OutputFile output_;  // holds the temporary name, under which HDF5 writes
  std::optional<hdf5::File> file_;
  std::optional<hdf5::Dataset> dataset_;
  Index bytes_ = 0, rows_left_ = 0;
  std::size_t tensors_left_;
};

}  // namespace gyr
