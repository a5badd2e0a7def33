// SPDX-License-Identifier: BSD-3-Clause
// When and how a run is saved: deck keys checkpoint.*.
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

struct CheckpointConfig {
  Index every, keep, keep_every;
  std::string files, read;
  int deflate;
  bool async, verify;
};

CheckpointConfig read_checkpoint(Section&);

}  // namespace gyr
