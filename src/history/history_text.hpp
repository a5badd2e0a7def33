// SPDX-License-Identifier: BSD-3-Clause
// Runs as text for a terminal.
#pragma once

#include <string>
#include <vector>

#include "src/history/run_history.hpp"

namespace gyr {

// Bars of eight heights, one per value, scaled from the smallest to the largest; a space for a value that is not
// finite.
std::string sparkline(const std::vector<double>& values);

// Per run: summary, sparklines, events, and timer sections with the slowest rank. For several runs, first a table of
// all runs and the deck keys that differ.
std::string text_of(const std::vector<RunHistory>&);

// Summary of a run as pairs of name and value, in the order of the table's columns.
std::vector<std::pair<std::string, std::string>> facts_of(const RunHistory&);

}  // namespace gyr
