// SPDX-License-Identifier: BSD-3-Clause
// Rules for the layout of a run, one function each. layout_of checks all of them; the search checks each one as soon as
// the values that it reads are chosen. All throw Exit::config.
#pragma once

#include "src/config/run_config.hpp"

namespace gyr {

// Checks parallel.tensor and parallel.sequence. `attention_ranks`: result of attention_ranks_of (mixer_split.hpp).
void check_sharding(const RunConfig&, int attention_ranks);
// Checks parallel.pipeline, virtual_stages and schedule.
void check_schedule(const ParallelConfig&);
// Checks cluster.emulate on `ranks` ranks.
void check_islands(const Islands&, int ranks);
// Layers of each pipeline stage: those of parallel.layers, or balanced by cost. `speeds`: relative speeds of the
// pipeline ranks; empty: all equal.
std::vector<Span> stages_of(const RunConfig&, const std::vector<double>& speeds = {});
// Checks train.micro_batch_size on `data` data-parallel ranks.
void check_batches(const RunConfig&, int data);
// Sentence about the number of data-parallel ranks that the global batch allows; empty if it allows `ranks`.
std::string batch_limit_text(const RunConfig&, int ranks);
// Sentence that names a similar batch that more ranks can share, if the batch of the deck has few common divisors with
// `ranks`; otherwise empty.
std::string divisible_batch_text(const RunConfig&, int ranks);
// Checks the context-parallel size and mode of a layout.
void check_context(const Layout&, const RunConfig&);
// Checks parallel.expert on `data` data-parallel ranks.
void check_experts(const RunConfig&, int data);

// Layout of a deck with the values that it leaves open: data-parallel size, attention ranks, layers of each stage.
// Checks no rule.
Layout layout_from_choices(const ParallelConfig&, int data, int attention_ranks, std::vector<Span> stages);
// Both functions change nothing unless there are several islands (cluster.emulate). order_by_islands(): sorts the ranks
// by island unless parallel.permutation is set. speeds_of_stages(): relative speeds of the pipeline ranks; empty
// without several islands.
void order_by_islands(Layout&, const ParallelConfig&);
std::vector<double> speeds_of_stages(const Layout&, const ParallelConfig&);
// Checks all rules. Like layout_of, but the message does not suggest valid grids.
Layout layout_by_rules(const RunConfig&, int ranks);

}  // namespace gyr
