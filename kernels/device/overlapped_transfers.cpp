// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/overlapped_transfers.hpp"

#include <algorithm>
#include <utility>

namespace gyr {

// Only the last few shapes are compared: in a sequence of many shapes, a shape occurs again soon or never.
void OverlappedTransfers::add(OverlappedTransfer& transfer, const LaunchShape& shape, double calls) {
  constexpr std::ptrdiff_t seen = 4;
  auto& overlapped = transfer.overlapped;
  for (auto one = overlapped.rbegin(); one != overlapped.rend() && one - overlapped.rbegin() < seen; ++one)
    if (one->first.kernel.data() == shape.kernel.data() && one->first.flops == shape.flops && one->first.bytes == shape.bytes) {
      one->second += calls;
      return;
    }
  overlapped.emplace_back(shape, calls);
}

int OverlappedTransfers::begin(const void* communicator, Operation operation, Index bytes, Index times) {
  in_flight_.push_back({++begun_, {communicator, operation, bytes, times}});
  return begun_;
}

void OverlappedTransfers::launched(const LaunchShape& shape, Index calls) {
  const double in_flight = double(in_flight_.size());
  for (InFlight& one : in_flight_) add(one.transfer, shape, double(calls) / in_flight);
}

void OverlappedTransfers::awaited(int number) {
  const auto one = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& u) { return u.number == number; });
  if (one == in_flight_.end()) return;
  OverlappedTransfer transfer = std::move(one->transfer);
  in_flight_.erase(one);
  if (transfer.overlapped.empty() || transfer.times == 0) return;
  for (auto& [shape, calls] : transfer.overlapped) calls /= double(transfer.times);
  hidden_.push_back(std::move(transfer));
}

std::vector<OverlappedTransfer> OverlappedTransfers::take() {
  in_flight_.clear();
  return std::exchange(hidden_, {});
}

}  // namespace gyr
