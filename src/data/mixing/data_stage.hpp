// SPDX-License-Identifier: BSD-3-Clause
// Stages of the data: entries of data.stages, "POSITION tokens: WEIGHT WEIGHT ...", with one weight for each corpus.
#pragma once

#include <string>
#include <vector>

#include "src/data/mixing/mixture.hpp"

namespace gyr {

struct DataStage {
  double position;  // where the stage begins: consumed tokens or samples
  bool in_samples;  // unit of `position`; false: tokens
  std::vector<double> weights;
  std::string text;  // the entry of the deck
};

// `corpora`: number of prefixes. Exit::config, with the entry, for an entry in another form, with another number of
// weights, or with weights that are negative or all 0.
std::vector<DataStage> read_stages(const std::vector<std::string>& entries, std::size_t corpora);

// The stages with their first samples, for samples of `seq_length` tokens: a stage begins with the first sample that
// follows at least `position` tokens. `initial`: weights until the first stage, with one for each corpus; not needed if
// a stage begins at 0. Exit::config for stages that are not in rising order, or that begin at the same sample.
std::vector<MixtureStage> mixture_stages(const std::vector<DataStage>&, std::int64_t seq_length, const std::vector<double>& initial);

}  // namespace gyr
