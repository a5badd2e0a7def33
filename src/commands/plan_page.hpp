// SPDX-License-Identifier: BSD-3-Clause
// HTML page of a plan that needs no network: timeline of every pipeline stage, memory over a step of the rank that uses
// most, communication between ranks, the facts of the text report, and the layouts that a search found.
#pragma once

#include "src/base/json.hpp"
#include "src/commands/cluster_report.hpp"
#include "src/planner/search/search.hpp"

namespace gyr {

// Data of the page. Times are integer multiples of `unit` seconds. `rows[].tasks` has seven integers per task: index of
// its kind in `kinds`, micro-batch, chunk, two details (first and end part, or the peer, or the bucket; -1: none),
// start relative to the start of the previous task, and duration.
Json plan_values(const RunPlan&, const PredictedRun&, const Machine&, double tokens, const SearchResult* = nullptr);
std::string plan_page(const RunPlan&, const PredictedRun&, const Machine&, double tokens, const SearchResult* = nullptr);

}  // namespace gyr
