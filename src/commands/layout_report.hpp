// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "src/config/run_config.hpp"

namespace gyr {

// Report of --explain-layout: how the weights of each kind of layer are sharded over tensor-parallel ranks, and why. It
// lists every operator and every move between operators, with the tensor states before and after, the bytes sent, and
// the cost of the best alternative (modules/weights/operator_chain.hpp).
std::string layout_report(const RunConfig&);

}  // namespace gyr
