// SPDX-License-Identifier: BSD-3-Clause
// memory.device_bytes: the memory of a rank is taken at once, before the first step, and no more than that.
#pragma once

#include "src/config/run_config.hpp"
#include "src/engine/memory/capacity.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr {

// Exit::config, with what other policies would take, where this rank takes more.
void check_device_limit(const RunConfig&, const EngineConfig&, const Layout&, int position, const Capacity&);

}  // namespace gyr
