// SPDX-License-Identifier: BSD-3-Clause
// On a dry-run device: what is computed between the start of a transfer and the wait for it. Where links work beside kernels, a rank waits for no
// more of the transfer than takes longer than that.
#pragma once

#include <utility>
#include <vector>

#include "kernels/device/launch_counts.hpp"
#include "kernels/device/traffic.hpp"

namespace gyr {

struct OverlappedTransfer {
  const void* communicator;
  Operation operation;
  Index bytes;                                             // of one
  Index times;                                             // as it counts
  std::vector<std::pair<LaunchShape, Index>> beside = {};  // one, and how often; a shape may come twice
};

class OverlappedTransfers {
 public:
  // A transfer begins that counts so many times. Its number.
  int begin(const void* communicator, Operation, Index bytes, Index times);
  void launched(const LaunchShape& shape, Index calls) {
    for (InFlight& one : in_flight_) add(one.transfer, shape, calls);
  }
  // Is waited for; nothing where it was forgotten.
  void awaited(int number);
  // Those that something was computed beside since the last call. What is under way is forgotten.
  std::vector<OverlappedTransfer> take();

 private:
  struct InFlight {
    int number;
    OverlappedTransfer transfer;
  };
  static void add(OverlappedTransfer&, const LaunchShape&, Index calls);

  std::vector<InFlight> in_flight_;
  std::vector<OverlappedTransfer> hidden_;
  int begun_ = 0;
};

}  // namespace gyr
