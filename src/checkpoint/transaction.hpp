// SPDX-License-Identifier: BSD-3-Clause
// Atomic write of a checkpoint: the files go to TARGET.tmp, which is renamed to TARGET once all of them are on disk.
// Without a commit TARGET.tmp is removed.
#pragma once

#include "src/checkpoint/manifest.hpp"

namespace gyr {

class Transaction {
 public:
  // Creates an empty TARGET.tmp. Exit::io if that fails or the file system lacks space for `bytes` of tensors.
  Transaction(const std::filesystem::path& target, const CheckpointHeader&, Index bytes);
  ~Transaction();  // removes TARGET.tmp unless it was committed
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  static std::filesystem::path temporary(const std::filesystem::path& target);
  const std::filesystem::path& target() const { return target_; }

  // Requires that all files named in the manifest are written and synced. Writes index and manifest, and renames
  // TARGET.tmp to TARGET. An older TARGET is replaced in one step if the file system supports it, then removed.
  // Exit::io.
  void commit(Manifest);

 private:
  void rename();

  std::filesystem::path target_, folder_;
  bool committed_ = false;
};

std::string shard_name(int number);

// Upper bound of the bytes on disk of a checkpoint with `bytes` of tensors, and `text` bytes of deck and provenance.
Index disk_bytes(Index bytes, Index text);

}  // namespace gyr
