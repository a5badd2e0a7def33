// SPDX-License-Identifier: BSD-3-Clause
// Numbers where the host can read them.
#pragma once

#include <vector>

#include "kernels/tensor.hpp"

namespace gyr {

// x itself where the host reads the device's memory, otherwise a copy in `buffer`. What computes x must have ended.
template <class S>
const std::byte* on_host(Tensor1<S> x, std::vector<std::byte>& buffer) {
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space::memory_space>::accessible) {
    return reinterpret_cast<const std::byte*>(x.data());
  } else {
    using Number = std::remove_const_t<S>;
    buffer.resize(x.span() * sizeof(S));
    const Kokkos::View<Number*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(reinterpret_cast<Number*>(buffer.data()), x.span());
    Kokkos::deep_copy(host, x);
    return buffer.data();
  }
}

}  // namespace gyr
