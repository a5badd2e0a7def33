// SPDX-License-Identifier: BSD-3-Clause
// A communicator and its blocks: groups of neighbouring ranks, all of one size. The ranks of a block hold copies of the
// same part of a weight (such as one key/value head) or parts of the same norm group.
#pragma once

#include <map>

#include "kernels/comm/communicator.hpp"

namespace gyr {

class BlockedCommunicator {
 public:
  explicit BlockedCommunicator(Communicator& whole) : whole_(&whole) { add_block(1, Communicator("self", dry_transport(0, 1))); }

  int size() const { return whole_->size(); }
  int rank() const { return whole_->rank(); }
  Communicator& whole() { return *whole_; }
  // Communicator of the block of `size` neighbouring ranks that contains this rank; it must have been added.
  Communicator& block(int size) { return size == whole_->size() ? *whole_ : blocks_.at(size); }
  bool has_block(int size) const { return size == whole_->size() || blocks_.contains(size); }
  void add_block(int size, Communicator communicator) { blocks_.emplace(size, std::move(communicator)); }

  template <class Visit>
  void visit(Visit&& visit) {
    visit(*whole_);
    for (auto& [size, block] : blocks_) visit(block);
  }

 private:
  Communicator* whole_;
  std::map<int, Communicator> blocks_;
};

}  // namespace gyr
