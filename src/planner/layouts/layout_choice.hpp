// SPDX-License-Identifier: BSD-3-Clause
// What a search decides of a run: how its ranks share the work, in what order, and what they keep.
#pragma once

#include <string>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/parallel/islands.hpp"

namespace gyr {

struct LayoutChoice {
  int tensor = 1, pipeline = 1, virtual_stages = 1, context = 1, data = 1, expert = 1;
  int attention_ranks = 0;  // 0: tensor ranks compute both mixers
  ContextMode context_mode = ContextMode::ring;
  bool sequence = false;
  Index micro_batch_size = 1;
  int schedule = 0;   // place in `schedules`, where virtual_stages is 1
  int recompute = 0;  // place in `recompute_names`
  Shard shard = Shard::none;
  int alpha = -1;  // activation.alpha, in parts of alpha_steps, where the deck leaves it to be found; -1: as the deck says
  auto operator<=>(const LayoutChoice&) const = default;

  int token_ranks() const { return data * context; }
  double share() const;      // of which `alpha` are parts
  std::string text() const;  // on one line, what is usual left out
};

// The keys of a deck that a choice settles, and their values, as the command line takes them: "parallel.tensor=4". `kept`: parallel.keep. `islands`:
// those that it is a choice on, if any.
std::vector<std::string> deck_lines(const LayoutChoice&, const std::vector<std::string>& kept, const Islands& islands = {});
// The run with the choice in place of what its deck said.
RunConfig with(RunConfig, const LayoutChoice&);
ParallelConfig with(ParallelConfig, const LayoutChoice&);
// What the run's deck says now, on so many ranks.
LayoutChoice choice_of(const RunConfig&, const Layout&);

}  // namespace gyr
