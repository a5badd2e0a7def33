// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace gyr {

// Rate of large matrix products on this rank, flop/s: the peak against which a CPU's utilisation is measured.
template <class T>
double product_rate();

}  // namespace gyr
