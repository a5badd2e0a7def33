// SPDX-License-Identifier: BSD-3-Clause
// Reports how often a run reads each corpus, in total and in each stage of the data.
#pragma once

#include <string>
#include <vector>

#include "src/data/dataset.hpp"

namespace gyr {

// True if the proportions of the corpora are worth a report: there are several, stages or epoch caps.
bool has_mixture(const Dataset&);

// Samples of one corpus in one stage, of the samples that a run reads.
struct StageReading {
  std::size_t stage;  // counted from 0
  std::int64_t first, last, corpus;
  double share;        // normalised weight in the deck
  std::int64_t read;   // samples
  double epochs, sum;  // epochs in this stage, and up to its end
};
// Rows of the first `samples` samples, stage by stage. Corpora with weight 0 in a stage have no row.
std::vector<StageReading> readings_of(const Dataset&, std::int64_t samples);

// The same as a table, and as lines of a log.
std::string reading_table(const Dataset&, std::int64_t samples);
std::vector<std::string> reading_lines(const Dataset&, std::int64_t samples);
// Changes of the proportions at the samples [first, last): stages that begin, and corpora that have been read as often as
// data.max_epochs allows. One line each.
std::vector<std::string> change_lines(const Dataset&, std::int64_t first, std::int64_t last);
// Samples and epochs of each corpus among the first `samples` samples, as one line.
std::string total_reading(const Dataset&, std::int64_t samples);

}  // namespace gyr
