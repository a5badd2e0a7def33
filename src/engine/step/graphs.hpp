// SPDX-License-Identifier: BSD-3-Clause
// Which training steps repeat themselves but for what lies in the device's memory.
#pragma once

#include <string>

#include "src/engine/step/engine.hpp"

namespace gyr {

// Why micro-batches that are trained on are told kernel by kernel on a device that has graphs, in a few words; empty: they are graphs.
std::string reason_without_graphs(const EngineConfig&, Grid&);

}  // namespace gyr
