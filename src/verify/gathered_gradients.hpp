// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/verify/equality.hpp"

namespace gyr {

// Gathers the full gradient of every trained weight after a step from all ranks; for small models only. Exit::internal
// if an element has no owner or several. Collective; every rank gets all gradients.
NamedGradients gathered_gradients(Engine&);

}  // namespace gyr
