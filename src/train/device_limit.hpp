// SPDX-License-Identifier: BSD-3-Clause
// memory.device_bytes: upper limit on the device memory of a rank, all of which is allocated before the first step.
#pragma once

#include "src/config/run_config.hpp"
#include "src/engine/memory/capacity.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr {

// Exit::config if this rank needs more than the limit. The message lists the activation policies that would fit. `trained`: memory
// of the trained model; `all`: of all models of the run.
void check_device_limit(const RunConfig&, const EngineConfig&, const Layout&, int position, const Capacity& trained, const Capacity& all);

}  // namespace gyr
