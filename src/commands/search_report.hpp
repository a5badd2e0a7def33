// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/planner/search/search.hpp"

namespace gyr {

// In one line, how many layouts there were and what became of them.
std::string search_summary(const SearchResult&);
// What a layout makes again, and of how much of it that is swapped, where this was found.
std::string kept_text(const LayoutChoice&);
// The best layouts with what their steps are made of, in ms, and why each loses to the first.
extern const std::vector<const char*> ranking_titles;
std::vector<std::vector<std::string>> ranking_rows(const RunConfig&, int ranks, const Cluster&, const SearchResult&);
// Of the others: what kind of refusal, how many layouts, and why.
std::vector<std::array<std::string, 3>> refused_rows(const SearchResult&);
// The best layouts with what their steps are made of and why each loses to the first, what refused the others and how many, and the lines of a deck
// that the first is.
std::string search_report(const RunConfig&, int ranks, const Cluster&, const SearchResult&);
// Exit::config where no layout fits: what the nearest lacks.
void require_found(const SearchResult&, int ranks, const Cluster&);

}  // namespace gyr
