// SPDX-License-Identifier: BSD-3-Clause
// A communicator and its blocks: groups of neighbouring ranks, all of one size. The ranks of a block hold copies of the
// same part of a weight (such as one key/value head) or parts of the same norm group.
#pragma once

#include <map>

#include "kernels/comm/communicator.hpp"

namespace gyr {

class BlockedCommunicator {
 public:
  explicit BlockedCommunicator(Communicator& full) : full_(&full) { add_block(1, Communicator("self", dry_transport(0, 1))); }

  int size() const { return full_->size(); }
  int rank() const { return full_->rank(); }
  Communicator& full() { return *full_; }
  // Communicator of the block of `size` neighbouring ranks that contains this rank; it must have been added.
  Communicator& block(int size) { return size == full_->size() ? *full_ : blocks_.at(size); }
  bool has_block(int size) const { return size == full_->size() || blocks_.contains(size); }
  void add_block(int size, Communicator communicator) { blocks_.emplace(size, std::move(communicator)); }

  template <class Visit>
  void visit(Visit&& visit) {
    visit(*full_);
    for (auto& [size, block] : blocks_) visit(block);
  }

 private:
  Communicator* full_;
  std::map<int, Communicator> blocks_;
};

}  // namespace gyr
