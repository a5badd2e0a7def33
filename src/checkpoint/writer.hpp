// SPDX-License-Identifier: BSD-3-Clause
// One process writes a checkpoint, tensor by tensor, a block of rows at a time. Nothing of it is seen until commit.
#pragma once

#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/checkpoint/transaction.hpp"

namespace gyr {

class CheckpointWriter {
 public:
  // The checkpoint becomes the folder `target`. Its numbers are cut evenly into `files` files. Exit::io where it cannot be made or has no
  // room for `tensors`.
  CheckpointWriter(const std::filesystem::path& target, const CheckpointHeader&, std::vector<StoredTensor> tensors, int files = 1,
                   const ShardOptions& options = {});

  // Rows [first, first + count) of a tensor, row-major in its dtype. Tensors come in the order in which they were listed, rows in order.
  void write(Index first, Index count, const void* rows);
  // Every tensor must have been written whole. Brings the files to disk, looks at them again and gives the folder its name.
  void commit();

  Index bytes() const { return bytes_; }  // that the tensors take
  int files() const { return written_; }  // so far

 private:
  // Of the tensor whose turn it is: the part, hence file, of a row; and what a part holds of it.
  Index part_of(Index row) const;
  Box box_in(Index part) const;
  void open_file();
  void close_file();

  Manifest manifest_;
  ShardOptions options_;
  int written_ = 0;
  Index files_, bytes_, bytes_done_ = 0, rows_done_ = 0;
  Index part_ = 0;          // that the open file holds
  std::size_t tensor_ = 0;  // whose turn it is
  Transaction transaction_;
  std::optional<ShardWriter> shard_;
};

}  // namespace gyr
