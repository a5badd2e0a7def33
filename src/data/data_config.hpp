// SPDX-License-Identifier: BSD-3-Clause
// What is read, and in which order: deck keys data.*.
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
  bool separate;  // documents do not see each other
  std::uint64_t seed;
  std::vector<Span> skip;  // samples that no step takes, in rising order
};

// `tokenizer`: where the deck names none.
DataConfig read_data(Section&, const std::string& tokenizer);

}  // namespace gyr
