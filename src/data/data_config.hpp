// SPDX-License-Identifier: BSD-3-Clause
// Deck keys data.*: the corpora that a run reads and the order of their samples.
#pragma once

#include <string>
#include <vector>

#include "modules/settings/settings.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

struct DataConfig {
  std::vector<std::string> prefixes;
  std::vector<double> weights;
  std::string split, order, tokenizer;
  bool separate;  // true: documents of a window are masked from each other in attention; false: they are joined
  std::uint64_t seed;
  std::vector<Span> skip;  // sample ranges that no step uses, in rising order
};

// `tokenizer`: default of data.tokenizer.
DataConfig read_data(Section&, const std::string& tokenizer);

}  // namespace gyr
