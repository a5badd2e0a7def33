// SPDX-License-Identifier: BSD-3-Clause
// Runs as a terminal shows them.
#pragma once

#include <string>
#include <vector>

#include "src/history/run_history.hpp"

namespace gyr {

// Bars of eight heights, one for each number, between the least and the most of them; a space where there is none.
std::string sparkline(const std::vector<double>& values);

// Of each run: what it was, its curves, what happened, and sections with the rank that takes longest; of several first a table of them all, and the
// keys of their decks that differ.
std::string text_of(const std::vector<RunHistory>&);

// What a run comes to, in the order of a table's columns.
std::vector<std::pair<std::string, std::string>> facts_of(const RunHistory&);

}  // namespace gyr
