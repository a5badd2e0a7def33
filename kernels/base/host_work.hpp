// SPDX-License-Identifier: BSD-3-Clause
// Work that the host computes itself, with the threads of a rank.
#pragma once

#include <functional>

#include "kernels/base/tensor.hpp"
#include "kernels/base/threads.hpp"

namespace gyr {

// Calls f(first, end) concurrently for parts of [0, n): one part per thread, fewer if n is small.
void parallel_on_host(Index n, const std::function<void(Index first, Index end)>& f, int threads = host_threads());

}  // namespace gyr
