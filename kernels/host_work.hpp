// SPDX-License-Identifier: BSD-3-Clause
// What the host computes itself, by the threads that a rank has there.
#pragma once

#include <functional>

#include "kernels/tensor.hpp"

namespace gyr {

// f(first, end) for parts of [0, n), at the same time.
void share_on_host(Index n, const std::function<void(Index first, Index end)>& f);

}  // namespace gyr
