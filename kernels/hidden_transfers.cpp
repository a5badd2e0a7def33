// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/hidden_transfers.hpp"

#include <algorithm>
#include <utility>

namespace gyr {

// Of many shapes in turn the same come again soon, or never.
void HiddenTransfers::add(HiddenTransfer& transfer, const LaunchShape& shape, Index calls) {
  constexpr std::ptrdiff_t seen = 4;
  auto& beside = transfer.beside;
  for (auto one = beside.rbegin(); one != beside.rend() && one - beside.rbegin() < seen; ++one)
    if (one->first.kernel.data() == shape.kernel.data() && one->first.flops == shape.flops && one->first.bytes == shape.bytes) {
      one->second += calls;
      return;
    }
  beside.emplace_back(shape, calls);
}

int HiddenTransfers::begin(const void* communicator, Operation operation, Index bytes, Index times) {
  under_way_.push_back({++begun_, {communicator, operation, bytes, times}});
  return begun_;
}

void HiddenTransfers::awaited(int number) {
  const auto one = std::find_if(under_way_.begin(), under_way_.end(), [&](const UnderWay& u) { return u.number == number; });
  if (one == under_way_.end()) return;
  HiddenTransfer transfer = std::move(one->transfer);
  under_way_.erase(one);
  if (transfer.beside.empty() || transfer.times == 0) return;
  for (auto& [shape, calls] : transfer.beside) calls /= transfer.times;
  hidden_.push_back(std::move(transfer));
}

std::vector<HiddenTransfer> HiddenTransfers::take() {
  under_way_.clear();
  return std::exchange(hidden_, {});
}

}  // namespace gyr
