// SPDX-License-Identifier: BSD-3-Clause
// Runs threads in the role of the ranks that build a corpus.
#pragma once

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "src/data/builder.hpp"

namespace gyr::testing {

// Runs action(team) on `size` threads that can all-gather numbers and share their exceptions.
inline void as_team(int size, const std::function<void(const BuildTeam&)>& action) {
  std::vector<std::int64_t> shared(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::barrier<> rank_barrier(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      BuildTeam team;
      team.rank = rank, team.size = size;
      team.all_gather = [&](std::int64_t mine) {
        shared[std::size_t(rank)] = mine;
        rank_barrier.arrive_and_wait();
        auto all = shared;
        rank_barrier.arrive_and_wait();
        return all;
      };
      team.collective_check = [&](const std::function<void()>& part) {
        auto& mine = errors[std::size_t(rank)] = nullptr;
        try {
          part();
        } catch (...) {
          mine = std::current_exception();
        }
        rank_barrier.arrive_and_wait();
        const auto first = std::find_if(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; });
        const std::exception_ptr error = first == errors.end() ? nullptr : *first;
        rank_barrier.arrive_and_wait();
        if (error) std::rethrow_exception(error);
      };
      action(team);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace gyr::testing
