// SPDX-License-Identifier: BSD-3-Clause
// Parallel loops on the host: every index of a range is processed once, with one thread per 2^14 indices, up to the
// given number of threads.
#include "kernels/base/host_work.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::host_work_suite {

TEST(host_work, every_index_is_processed_exactly_once) {
  std::mt19937_64 random(seed_of_run());
  std::vector<Index> lengths = {0, 1, (Index(1) << 14) - 1, Index(1) << 15};
  for (int i = 0; i < 12; ++i) lengths.push_back(Index(random() % 300'000));
  for (const Index n : lengths)
    for (const int threads : {1, 2, 3, 8}) {
      std::vector<int> visits(static_cast<std::size_t>(n), 0);
      std::vector<std::thread::id> by(static_cast<std::size_t>(n));
      parallel_on_host(
          n,
          [&](Index first, Index end) {
            for (Index i = first; i < end; ++i) ++visits[std::size_t(i)], by[std::size_t(i)] = std::this_thread::get_id();
          },
          threads);
      EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(n), 1)) << n << " by " << threads;
      const auto workers = std::set(by.begin(), by.end()).size();
      const Index worth = std::clamp<Index>(n >> 14, 1, threads);
      EXPECT_EQ(workers, n == 0 ? 0 : std::size_t(worth)) << n << " by " << threads;
    }
}

}  // namespace gyr::testing::host_work_suite
