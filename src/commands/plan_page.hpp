// SPDX-License-Identifier: BSD-3-Clause
// A plan as one page that a browser shows without any network: what every rank of the pipeline does when, memory of the fullest rank over a step, who
// sends how much to whom, the facts that the text form prints, and the layouts that a search has found.
#pragma once

#include "src/base/json.hpp"
#include "src/commands/cluster_report.hpp"
#include "src/planner/search/search.hpp"

namespace gyr {

// The page's numbers. Times are whole units of `unit` seconds; `rows[].tasks` holds seven numbers for each: place of its kind in `kinds`,
// micro-batch, chunk, two that say more (parts from .. to, the peer, or the bucket; -1: nothing), how much later it begins than the one before it,
// and how long it takes.
Json plan_numbers(const RunPlan&, const PredictedRun&, const Machine&, double tokens, const SearchResult* = nullptr);
std::string plan_page(const RunPlan&, const PredictedRun&, const Machine&, double tokens, const SearchResult* = nullptr);

}  // namespace gyr
