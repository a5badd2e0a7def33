// SPDX-License-Identifier: BSD-3-Clause
// Access to a tensor's data from the host.
#pragma once

#include <vector>

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// Returns x.data if the host can read device memory, otherwise a copy of it in `buffer`. Kernels that write x must have
// finished.
inline const std::byte* on_host(const AnyTensor& x, std::vector<std::byte>& buffer) {
  if (backend::host_reads_memory()) return static_cast<const std::byte*>(x.data);
  buffer.resize(std::size_t(x.bytes()));
  copy_to_host(x, buffer.data());
  return buffer.data();
}

}  // namespace gyr
