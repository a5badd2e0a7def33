// SPDX-License-Identifier: BSD-3-Clause
// A communicator with its blocks: its ranks in neighbourhoods of equal size, which hold copies of the same unit or parts of the same norm
// group.
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
  // The block of `size` neighbours this rank is in; it must have been added.
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
