// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "src/config/run_config.hpp"

namespace gyr {

// How the weights of each kind of layer are cut over the tensor axis, and why: operator by operator, with moves between them, from which state of a
// tensor to which it leads, what that sends, and what the next best way would cost (modules/weights/operator_chain.hpp).
std::string layout_report(const RunConfig&);

}  // namespace gyr
