// SPDX-License-Identifier: BSD-3-Clause
// Host access to a tensor: directly if the host can read the device's memory, otherwise through a copy.
#pragma once

#include <vector>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

template <class S>
class HostValues {
 public:
  explicit HostValues(const Tensor1<S>& x) : x_(x), copy_(backend::host_reads_memory() ? 0 : x.span()) {}
  // take() copies the tensor to the host after the work that was enqueued before, put() copies it back. Without take(),
  // all elements must be written before put().
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
