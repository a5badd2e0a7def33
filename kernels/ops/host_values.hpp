// SPDX-License-Identifier: BSD-3-Clause
// A tensor as the host has it: itself where the host reads the device's memory, otherwise a copy.
#pragma once

#include <vector>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

template <class S>
class HostValues {
 public:
  explicit HostValues(const Tensor1<S>& x) : x_(x), copy_(backend::host_reads_memory() ? 0 : x.span()) {}
  // From the device, behind what it was told before; and back to it. Without the first, all is to be written.
  void take() {
    if (!copy_.empty()) copy_to_host(x_, copy_.data());
  }
  void put() {
    if (!copy_.empty()) copy_to_device(copy_.data(), x_);
  }
  S& operator()(Index i) { return copy_.empty() ? x_(i) : copy_[std::size_t(i)]; }

 private:
  Tensor1<S> x_;
  std::vector<S> copy_;
};

}  // namespace gyr
