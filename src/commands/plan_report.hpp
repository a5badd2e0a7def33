// SPDX-License-Identifier: BSD-3-Clause
// The plan of a run as text: parameters, layout, flops, bytes of every kind of rank by category, traffic of every communicator.
#pragma once

#include "src/commands/run_plan.hpp"
#include "src/planner/predict/longest_sequence.hpp"

namespace gyr {

Facts plan_facts(const RunPlan&);
// Category, MiB, and what it is.
std::vector<std::vector<std::string>> byte_rows(const RankPlan&);
// `predicted` (cluster_report) stands behind the facts.
std::string plan_report(const RunPlan&, const std::string& predicted);

// How long sequences may be with each way to keep activations.
std::string longest_report(const RunConfig&, int ranks, const MemoryLimits&);

}  // namespace gyr
