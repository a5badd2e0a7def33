// SPDX-License-Identifier: BSD-3-Clause
// What the host computes itself, by the threads that a rank has there.
#pragma once

#include <functional>

#include "kernels/base/tensor.hpp"
#include "kernels/base/threads.hpp"

namespace gyr {

// f(first, end) for parts of [0, n), at the same time, of which there are as many as threads where each is worth one.
void parallel_on_host(Index n, const std::function<void(Index first, Index end)>& f, int threads = host_threads());

}  // namespace gyr
