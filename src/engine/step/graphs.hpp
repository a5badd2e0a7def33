// SPDX-License-Identifier: BSD-3-Clause
// Training steps that can be captured as CUDA graphs: they launch the same kernels each time, and only the contents of
// device memory change.
#pragma once

#include <string>

#include "src/engine/step/engine.hpp"

namespace gyr {

// Reason in a few words why training micro-batches are launched kernel by kernel on a device that has CUDA graphs;
// empty: they are captured as graphs.
std::string reason_without_graphs(const EngineConfig&, Grid&);

}  // namespace gyr
