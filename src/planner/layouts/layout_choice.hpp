// SPDX-License-Identifier: BSD-3-Clause
// Candidate layout of a run: parallel sizes, pipeline schedule, activation checkpointing and sharding level, as the
// search chooses them.
#pragma once

#include <string>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/parallel/islands.hpp"

namespace gyr {

struct LayoutChoice {
  int tensor = 1, pipeline = 1, virtual_stages = 1, context = 1, data = 1, expert = 1;
  int attention_ranks = 0;  // 0: every tensor-parallel rank computes both mixers (attention and SSM)
  ContextMode context_mode = ContextMode::ring;
  bool sequence = false;
  Index micro_batch_size = 1;
  int schedule = 0;   // index into `schedules` (src/parallel/schedule.hpp), used if virtual_stages is 1
  int recompute = 0;  // index into `recompute_names` (src/engine/config/recompute.hpp)
  Shard shard = Shard::none;
  int alpha = -1;  // activation.alpha in units of 1 / alpha_steps if the deck sets it to auto; -1: as in the deck
  auto operator<=>(const LayoutChoice&) const = default;

  int token_ranks() const { return data * context; }
  double offload_fraction() const;  // `alpha` as a fraction from 0 to 1
  std::string text() const;         // description of the layout on one line, without default values
};

// Deck keys that this layout sets, with their values, as command-line arguments such as "parallel.tensor=4". `kept`:
// parallel.keep. `islands`: islands that the layout was chosen for, if there are several.
std::vector<std::string> deck_lines(const LayoutChoice&, const std::vector<std::string>& kept, const Islands& islands = {});
// The run with the settings of the layout in place of those in its deck.
RunConfig with(RunConfig, const LayoutChoice&);
ParallelConfig with(ParallelConfig, const LayoutChoice&);
// The layout that the deck of the run describes on the ranks of the given Layout.
LayoutChoice choice_of(const RunConfig&, const Layout&);

}  // namespace gyr
