// SPDX-License-Identifier: BSD-3-Clause
// Table of the operations that a transport has in progress, by ticket.
#pragma once

#include <deque>
#include <vector>

#include "kernels/device/transport.hpp"

namespace gyr {

template <class Operation>
class Operations {
 public:
  using Ticket = Transport::Ticket;

  // Returns an unused ticket. Released tickets are reused, together with the entry that their earlier operation left.
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
  std::deque<Operation> operations_;  // a deque, because its entries keep their addresses
  std::vector<Ticket> free_;
};

}  // namespace gyr
