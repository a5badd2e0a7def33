// SPDX-License-Identifier: BSD-3-Clause
// Engine settings that follow from the settings of a run.
#pragma once

#include "src/config/run_config.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr {

EngineConfig engine_config(const RunConfig&, const Layout&);

}  // namespace gyr
