// SPDX-License-Identifier: BSD-3-Clause
// Text report of a plan: parameters, layout, FLOPs, memory of every rank by category, and communication by
// communicator.
#pragma once

#include <functional>
#include <optional>

#include "src/base/quantity.hpp"
#include "src/commands/run_plan.hpp"
#include "src/planner/predict/longest_sequence.hpp"

namespace gyr {

// Tokens of the deck's steps, per parameter and in passes over the training data. The passes are left out if the token files
// cannot be opened, because a plan needs no data.
inline constexpr const char* tokens_title = "tokens";
std::string tokens_text(const RunConfig&);
// `with_tokens`: contains the line above, which a prediction has next to its days.
Facts plan_facts(const RunPlan&, bool with_tokens);
// The same run without layers R, for what retrieval adds to a step; empty if the model has none, or no other layers. A given
// split of the layers over stages is then left to their costs.
std::optional<RunConfig> without_retrieval(const RunConfig&);
// Rows of memory category, bytes as text, description of the allocation.
std::vector<std::vector<std::string>> byte_rows(const RankPlan&, const std::function<std::string(double)>& text = mebi);
// Bytes of a checkpoint of the run.
double checkpoint_bytes(const RunConfig&, const Layout&);
// `predicted` (from cluster_report) is inserted after the facts.
std::string plan_report(const RunPlan&, const std::string& predicted);

// Longest sequences that fit in memory, for each activation policy (recompute, offload). progress: called before each of them.
std::string longest_report(const RunConfig&, int ranks, const MemoryLimits&, const std::function<void(const std::string&)>& progress);

}  // namespace gyr
