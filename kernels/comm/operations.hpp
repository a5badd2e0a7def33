// SPDX-License-Identifier: BSD-3-Clause
// What a transport keeps of its operations under way, by ticket.
#pragma once

#include <deque>
#include <vector>

#include "kernels/device/transport.hpp"

namespace gyr {

template <class Operation>
class Operations {
 public:
  using Ticket = Transport::Ticket;

  // Void tickets are given again, with what their operation has left behind.
  Ticket next() {
    if (free_.empty()) {
      operations_.emplace_back();
      return Ticket(operations_.size()) - 1;
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    return ticket;
  }
  Operation& operator[](Ticket ticket) { return operations_[std::size_t(ticket)]; }
  void release(Ticket ticket) { free_.push_back(ticket); }

 private:
  std::deque<Operation> operations_;  // which stay where they are
  std::vector<Ticket> free_;
};

}  // namespace gyr
