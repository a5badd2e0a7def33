// SPDX-License-Identifier: BSD-3-Clause
// Deck keys data.*: the corpora that a run reads and the order of their samples.
#pragma once

#include <string>
#include <vector>

#include "modules/settings/settings.hpp"
#include "src/data/mixing/data_stage.hpp"
#include "src/data/mixing/fill_in_middle.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

struct DataConfig {
  std::vector<std::string> prefixes;
  std::vector<double> weights;    // until the first of `stages`
  std::vector<DataStage> stages;  // in which the weights change
  std::vector<Index> max_epochs;  // epochs of each corpus that a run reads at most, 0: no limit; or empty
  std::string split, order, tokenizer;
  bool separate;  // true: documents of a window are masked from each other in attention; false: they are joined
  std::uint64_t seed;
  FimConfig fim;
  std::vector<Span> skip;  // sample ranges that no step uses, in rising order
};

// `tokenizer`: default of data.tokenizer.
DataConfig read_data(Section&, const std::string& tokenizer);

}  // namespace gyr
