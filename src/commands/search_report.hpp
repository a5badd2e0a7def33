// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/commands/cluster_report.hpp"
#include "src/config/run_config.hpp"
#include "src/planner/search/search.hpp"
#include "src/report/transfer.hpp"

namespace gyr {

// Shows the progress of searches on standard error.
class SearchStatus {
 public:
  SearchWatch watch();  // valid as long as this object

 private:
  static constexpr double seconds_between_lines = 5;  // if standard error is no terminal
  StatusLine line_{stderr, seconds_between_lines};
};

// Searches for the fastest layouts on a machine and shows the progress on standard error. options.watch is replaced.
SearchResult search_with_progress(const RunConfig&, int ranks, const Machine&, SearchOptions);
// One line: the number of layouts, and how many were rejected, pruned or predicted.
std::string search_summary(const SearchResult&);
// Recomputation of a layout and, if the search chose it, the fraction of activations that is offloaded
// (activation.alpha).
std::string recompute_text(const LayoutChoice&);
// Rows of the fastest layouts: step time and its parts in ms, memory, MFU, and the main reason why each is slower than
// the first.
extern const std::vector<const char*> ranking_titles;
std::vector<std::vector<std::string>> ranking_rows(const RunConfig&, int ranks, const Cluster&, const SearchResult&);
// Rejected layouts: category of the reason, number of layouts, reason.
std::vector<std::array<std::string, 3>> refused_rows(const SearchResult&);
// Full report: the fastest layouts with the parts of their step times, the place of the deck's own layout, the rejected
// layouts counted by reason, and the fastest layout as deck keys. `tokens` > 0: also the days and the energy of a
// training run of this length.
std::string search_report(const RunConfig&, int ranks, const Cluster&, const SearchResult&, double tokens);
// Exit::config if no layout fits; the message names the most frequent reasons.
void require_found(const RunConfig&, const SearchResult&, int ranks, const Cluster&);

}  // namespace gyr
