// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/schedule.hpp"

#include <algorithm>

#include "kernels/error.hpp"
#include "regression/testing.hpp"
#include "src/parallel/simulator.hpp"

namespace gyr {
namespace {

std::vector<std::vector<Task>> all(const PipelineShape& shape) {
  std::vector<std::vector<Task>> lists;
  for (int rank = 0; rank < shape.ranks; ++rank) lists.push_back(one_f_one_b(shape, rank));
  return lists;
}

// With forward 1 and backward 2 per stage: 3 m + 3 (p - 1).
TEST(schedule, makespan_is_the_closed_form) {
  EXPECT_EQ(simulate({4, 1, 8}, all({4, 1, 8}), {}).makespan, 33);
  EXPECT_EQ(simulate({8, 1, 16}, all({8, 1, 16}), {}).makespan, 69);
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 12; ++m) EXPECT_EQ(simulate({p, 1, m}, all({p, 1, m}), {}).makespan, 3 * m + 3 * (p - 1)) << p << " " << m;
}

TEST(schedule, the_idle_part_is_that_of_the_simulation) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 12; ++m) {
      const Simulation s = simulate({p, 1, m}, all({p, 1, m}), {});
      EXPECT_DOUBLE_EQ(idle_part({p, 1, m}), 1 - s.busy[0] / s.makespan) << p << " " << m;
    }
}

TEST(schedule, holds_no_more_micro_batches_than_the_stages_behind_it_need) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 12; ++m)
      for (int r = 0; r < p; ++r) EXPECT_EQ(in_flight(one_f_one_b({p, 1, m}, r)), std::min(p - r, m)) << p << " " << m << " " << r;
}

TEST(schedule, every_micro_batch_passes_once_each_way_and_every_message_has_its_receiver) {
  for (int p = 1; p <= 5; ++p)
    for (int m = 1; m <= 7; ++m) {
      const auto lists = all({p, 1, m});
      for (int r = 0; r < p; ++r)
        for (int i = 0; i < m; ++i) {
          const auto count = [&](int rank, TaskKind kind) { return std::count(lists[rank].begin(), lists[rank].end(), Task{kind, 0, i}); };
          EXPECT_EQ(count(r, TaskKind::forward), 1);
          EXPECT_EQ(count(r, TaskKind::backward), 1);
          EXPECT_EQ(count(r, TaskKind::send_output), r < p - 1);
          EXPECT_EQ(count(r, TaskKind::receive_input), r > 0);
          EXPECT_EQ(count(r, TaskKind::send_gradient), r > 0);
          EXPECT_EQ(count(r, TaskKind::receive_gradient), r < p - 1);
        }
    }
}

TEST(schedule, a_list_that_waits_for_itself_is_called_a_deadlock) {
  auto lists = all({2, 1, 1});
  std::rotate(lists[0].begin(), lists[0].begin() + 2, lists[0].begin() + 3);  // receive the gradient before sending the output
  EXPECT_THROW(simulate({2, 1, 1}, lists, {}), Error);
}

}  // namespace
}  // namespace gyr
