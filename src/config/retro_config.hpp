// SPDX-License-Identifier: BSD-3-Clause
// Deck keys retro.*: where a run finds the neighbours that layers R of its model read.
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

struct RunConfig;

struct RetroConfig {
  std::string project;  // folder of the retrieval project; empty: none
  Index shuffle = 0;    // seed by which every chunk gets the neighbours of another one, as a control; 0: its own neighbours
};

RetroConfig read_retro(Section&);
// Requirements of layers R on the other sections; Exit::config.
void check_retrieval(const RunConfig&);

}  // namespace gyr
