// SPDX-License-Identifier: BSD-3-Clause
// A run on several islands computes the same as one rank, whether its axes and layers follow the islands or its ranks
// are permuted at random.
#include "src/parallel/islands.hpp"

#include <numeric>

#include "regression/planner/random_run.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/verify/steps.hpp"

namespace gyr::testing::islands_suite {
namespace {

constexpr int ranks = 8;

struct Shape {
  int data, pipeline, context, tensor;
};

RunConfig draw_run(Dice& dice, const Shape& s, const std::string& islands) {
  const int micros = dice.between(1, 3), chunks = s.pipeline > 1 ? dice.between(1, 2) : 1;
  Deck deck = Deck::parse(
      fmt::format("model:\n  pattern: {}\n  vocab_size: 64\n  hidden_size: 16\n  attention: {{num_heads: 4, num_kv_heads: 2, head_dim: 4}}\n"
                  "  mamba: {{num_heads: 4, head_dim: 4, state_size: 4, chunk_size: 4}}\n  mlp: {{intermediate_size: 16}}\n"
                  "  tie_word_embeddings: {}\ntrain: {{global_batch_size: {}, micro_batch_size: 1, seq_length: 16}}\n"
                  "parallel: {{data: {}, pipeline: {}, context: {}, tensor: {}, virtual_stages: {}, shard: {}}}\ncluster: {{emulate: \"{}\"}}\n",
                  dice.one_of<std::string>({"\"P x 16\"", "\"M-*- x 4\""}), dice.coin(), micros * s.data, s.data, s.pipeline, s.context, s.tensor,
                  chunks, dice.one_of<std::string>({"none", "optimizer"}), islands),
      "drawn");
  RunConfig run = read_run_config(deck);
  deck.finish();
  return run;
}

TEST(islands, run_on_islands_equals_one_rank) {
  Dice dice(seed_of_run());
  const std::vector<Shape> shapes{{2, 2, 1, 2}, {1, 4, 1, 2}, {2, 4, 1, 1}, {1, 2, 2, 2}, {1, 8, 1, 1}, {4, 2, 1, 1}, {2, 1, 1, 4}};
  int uneven = 0;
  for (int i = 0; i < 10; ++i) {
    const Shape shape = dice.one_of<Shape>(shapes);
    const std::string islands = dice.one_of<std::string>({"a:4,b:4", "a:4:2,b:4:1", "a:2:1,b:6:3", "a:2,b:4:2.5,c:2:4", "a:5,b:3:2"});
    RunConfig run = draw_run(dice, shape, islands);
    if (dice.coin()) {
      run.parallel.permutation.resize(ranks);
      std::iota(run.parallel.permutation.begin(), run.parallel.permutation.end(), 0);
      for (int r = ranks - 1; r > 0; --r)
        std::swap(run.parallel.permutation[std::size_t(r)], run.parallel.permutation[std::size_t(dice.between(0, r))]);
    }
    const Layout layout = layout_of(run, ranks);
    for (const Span& stage : layout.stages) uneven += stage.size() != layout.stages.front().size();
    Grid* const grid = grid_of(layout);
    for (const Law& law : compare_with_one_rank(run, DType::f64, *grid, wait_policy_of(MPI_COMM_WORLD)))
      EXPECT_TRUE(law.holds()) << law.what << " is off by " << law.error << " on " << layout.text() << ", " << text_of(layout, run.parallel.islands);
  }
  EXPECT_GT(uneven, 3);
}

}  // namespace
}  // namespace gyr::testing::islands_suite
