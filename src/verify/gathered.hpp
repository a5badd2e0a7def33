// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/verify/equality.hpp"

namespace gyr {

using NamedTensors = NamedGradients;

// Gathers a content of every trained weight that has it, in full, from all ranks; for small models only. Exit::internal
// if an element has no owner or several. Collective; every rank gets all tensors.
NamedTensors gathered(Engine&, Content);

// The gradients after a step.
inline NamedGradients gathered_gradients(Engine& engine) { return gathered(engine, Content::gradient); }

}  // namespace gyr
