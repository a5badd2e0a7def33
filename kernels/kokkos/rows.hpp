// SPDX-License-Identifier: BSD-3-Clause
// One loop over independent rows; the columns of a row are the caller's inner loop, which the compiler vectorises.
#pragma once

#include "kernels/device.hpp"

namespace gyr {

template <class Body>
void for_rows(Device& dev, const char* kernel, Index rows, const Body& body) {
  Kokkos::parallel_for(kernel, Kokkos::RangePolicy<Space, Kokkos::IndexType<Index>>(dev.exec, 0, rows), body);
}

}  // namespace gyr
