// SPDX-License-Identifier: BSD-3-Clause
// The plan of a run as text: parameters, layout, flops, bytes of every kind of rank by category, traffic of every communicator.
#pragma once

#include <string>

#include "src/config/run_config.hpp"

namespace gyr {

std::string plan_report(const RunConfig&, int ranks);

}  // namespace gyr
