// SPDX-License-Identifier: BSD-3-Clause
// Which numbers of which steps are written: deck keys dump.*.
#pragma once

#include <string>
#include <vector>

#include "modules/settings/settings.hpp"

namespace gyr {

struct DumpConfig {
  std::vector<Index> steps;
  std::vector<std::string> what;  // patterns of paths
};

DumpConfig read_dump(Section&);

}  // namespace gyr
