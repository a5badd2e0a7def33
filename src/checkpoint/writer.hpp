// SPDX-License-Identifier: BSD-3-Clause
// Writes a checkpoint from one process, tensor by tensor, in blocks of rows. It becomes visible only with commit().
#pragma once

#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/checkpoint/transaction.hpp"

namespace gyr {

class CheckpointWriter {
 public:
  // `target`: folder of the checkpoint. The tensors' bytes are divided evenly over `files` shard files. Exit::io if the
  // folder cannot be created or lacks space for `tensors`.
  CheckpointWriter(const std::filesystem::path& target, const CheckpointHeader&, std::vector<StoredTensor> tensors, int files = 1,
                   const ShardOptions& options = {});

  // Appends rows [first, first + count) of the current tensor, row-major in its dtype. Tensors follow in the order of
  // the list, rows in ascending order.
  void write(Index first, Index count, const void* rows);
  // Requires that every tensor was written completely. Syncs the files, verifies them (ShardOptions::verify) and
  // commits the folder.
  void commit();

  Index bytes() const { return bytes_; }  // bytes of all tensors of the checkpoint
  int files() const { return written_; }  // number of shard files finished so far

 private:
  // For the current tensor: the part (one per file) that contains a row, and the box of rows that belongs to a part.
  Index part_of(Index row) const;
  Box box_in(Index part) const;
  void open_file();
  void close_file();

  Manifest manifest_;
  ShardOptions options_;
  int written_ = 0;
  Index files_, bytes_, bytes_done_ = 0, rows_done_ = 0;
  Index part_ = 0;          // index of the part that the open file holds
  std::size_t tensor_ = 0;  // index of the current tensor
  Transaction transaction_;
  std::optional<ShardWriter> shard_;
};

}  // namespace gyr
