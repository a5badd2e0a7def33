// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/host_work.hpp"

#include <algorithm>
#include <thread>
#include <vector>

namespace gyr {

void parallel_on_host(Index n, const std::function<void(Index first, Index end)>& f, int threads) {
  constexpr Index least = Index(1) << 14;  // fewest elements per thread
  const Index parts = std::clamp<Index>(n / least, 1, threads);
  std::vector<std::thread> workers;
  for (Index i = 1; i < parts; ++i) workers.emplace_back([&f, n, parts, i] { f(n * i / parts, n * (i + 1) / parts); });
  f(0, n / parts);
  for (std::thread& other : workers) other.join();
}

}  // namespace gyr
