// SPDX-License-Identifier: BSD-3-Clause
// Overlap of communication and computation on a dry-run device: the kernels launched between the start of a transfer
// and the wait for it. If links work while kernels run, a rank waits only for the part of a transfer that takes longer
// than these kernels. A kernel that runs while n transfers are in flight counts 1/n for each of them, because they share
// the link: otherwise a second of computation could hide more than a second of communication.
#pragma once

#include <utility>
#include <vector>

#include "kernels/device/launch_counts.hpp"
#include "kernels/device/traffic.hpp"

namespace gyr {

struct OverlappedTransfer {
  const void* communicator;
  Operation operation;
  Index bytes;                                                  // bytes of one transfer
  Index times;                                                  // multiplicity with which the dry run counts the transfer
  std::vector<std::pair<LaunchShape, double>> overlapped = {};  // overlapped kernels and their share per transfer; a shape may occur twice
};

class OverlappedTransfers {
 public:
  // Starts a transfer that counts `times` times; returns its number.
  int begin(const void* communicator, Operation, Index bytes, Index times);
  void launched(const LaunchShape& shape, Index calls);
  // Ends the transfer with this number at the wait for it; no effect if take() has forgotten it.
  void awaited(int number);
  // Returns the transfers since the last call that overlapped with any kernel. Transfers in progress are forgotten.
  std::vector<OverlappedTransfer> take();

 private:
  struct InFlight {
    int number;
    OverlappedTransfer transfer;
  };
  static void add(OverlappedTransfer&, const LaunchShape&, double calls);

  std::vector<InFlight> in_flight_;
  std::vector<OverlappedTransfer> hidden_;
  int begun_ = 0;
};

}  // namespace gyr
