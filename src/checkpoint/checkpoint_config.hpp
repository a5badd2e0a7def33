// SPDX-License-Identifier: BSD-3-Clause
// Deck keys checkpoint.*: interval, retention, files and verification of checkpoints.
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

struct CheckpointConfig {
  Index every, keep, keep_every;
  std::string files, read;
  int deflate;
  bool at_end, keep_best, async, verify;
};

CheckpointConfig read_checkpoint(Section&);

}  // namespace gyr
