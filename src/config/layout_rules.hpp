// SPDX-License-Identifier: BSD-3-Clause
// The rules that a run's layout keeps, each by itself: layout_of asks them all, and a search asks each as soon as what it reads is settled. All throw
// Exit::config.
#pragma once

#include "src/config/run_config.hpp"

namespace gyr {

// parallel.tensor and parallel.sequence; attention_ranks as attention_ranks_of (mixer_split.hpp) says.
void check_sharding(const RunConfig&, int attention_ranks);
// parallel.pipeline, virtual_stages and schedule.
void check_schedule(const ParallelConfig&);
// cluster.emulate on so many ranks.
void check_islands(const Islands&, int ranks);
// The layers of each stage, as parallel.layers says or cut by cost. `speeds`: of the ranks of the pipeline; none: all alike.
std::vector<Span> stages_of(const RunConfig&, const std::vector<double>& speeds = {});
// train.micro_batch_size on so many data ranks.
void check_batches(const TrainConfig&, int data);
// The context axis of a layout and its mode.
void check_context(const Layout&, const RunConfig&);
// parallel.expert on so many data ranks.
void check_experts(const RunConfig&, int data);

// What a deck says with what it leaves open: the ranks of the data axis, the attention's, the layers of each stage. Asks no rule.
Layout layout_of_settled(const ParallelConfig&, int data, int attention_ranks, std::vector<Span> stages);
// Where there are several islands (cluster.emulate): ranks in their order, unless parallel.permutation says another, and speeds of the ranks of the
// pipeline; else as it was, and none.
void order_by_islands(Layout&, const ParallelConfig&);
std::vector<double> speeds_of_stages(const Layout&, const ParallelConfig&);
// All rules. What layout_of says, without a word about grids that would do.
Layout layout_by_rules(const RunConfig&, int ranks);

}  // namespace gyr
