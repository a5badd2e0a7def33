// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/verify/equality.hpp"

namespace gyr {

// Every logical gradient of a weight that is trained, behind a step and gathered from all ranks: for small models. Exit::internal where an element
// has no owner or more than one. Collective; every rank has all of them then.
NamedGradients gathered_gradients(Engine&);

}  // namespace gyr
