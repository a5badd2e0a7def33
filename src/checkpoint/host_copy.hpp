// SPDX-License-Identifier: BSD-3-Clause
// Numbers where the host can read them.
#pragma once

#include <vector>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// x itself where the host reads the device's memory, otherwise a copy in `buffer`. What computes x must have ended.
inline const std::byte* on_host(const AnyTensor& x, std::vector<std::byte>& buffer) {
  if (backend::host_reads_memory()) return static_cast<const std::byte*>(x.data);
  buffer.resize(std::size_t(x.bytes()));
  copy_to_host(x, buffer.data());
  return buffer.data();
}

}  // namespace gyr
