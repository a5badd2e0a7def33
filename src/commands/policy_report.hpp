// SPDX-License-Identifier: BSD-3-Clause
// Predicted calls of an iteration of policy training, as text.
#pragma once

#include <string>

#include "src/config/run_config.hpp"
#include "src/planner/policy/policy_search.hpp"

namespace gyr {

// One line: seconds of an iteration and its longest call.
std::string iteration_text(const IterationTimes&);
// Bars of the calls over an iteration, or over two if generation runs beside training.
std::string timeline_text(const IterationTimes&);
// Table of the calls: seconds, ranks, layout, memory, tokens/s; the assumptions about the answers; and the bars.
std::string calls_report(const RunConfig&, const IterationTimes&);
// The fastest pairs of layouts, the heuristic, and the overrides of the fastest. Exit::config if no pair fits.
std::string policy_search_report(const RunConfig&, int ranks, const Cluster&, const PolicySearchResult&, double tokens);

}  // namespace gyr
