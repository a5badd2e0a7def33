// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint while it is being written: a folder TARGET.tmp, which becomes TARGET at once when everything in it is on disk, or vanishes.
#pragma once

#include "src/checkpoint/manifest.hpp"

namespace gyr {

class Transaction {
 public:
  // Makes TARGET.tmp afresh. Exit::io where it cannot be made or has no room for `bytes` of tensors.
  Transaction(const std::filesystem::path& target, const CheckpointHeader&, Index bytes);
  ~Transaction();  // removes it unless it was committed
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  static std::filesystem::path temporary(const std::filesystem::path& target);
  const std::filesystem::path& target() const { return target_; }

  // The files that the manifest names are written and on disk; adds index and manifest and gives the folder its name. What bore the name
  // before is replaced in the same moment and then removed. Exit::io.
  void commit(Manifest);

 private:
  void rename();

  std::filesystem::path target_, folder_;
  bool committed_ = false;
};

std::string shard_name(int number);

}  // namespace gyr
