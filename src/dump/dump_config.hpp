// SPDX-License-Identifier: BSD-3-Clause
// Deck keys dump.*: the steps and the tensors to dump.
#pragma once

#include <string>
#include <vector>

#include "modules/settings/settings.hpp"

namespace gyr {

struct DumpConfig {
  std::vector<Index> steps;
  std::vector<std::string> what;  // patterns of tensor paths
};

DumpConfig read_dump(Section&);

}  // namespace gyr
