// SPDX-License-Identifier: BSD-3-Clause
// Curves of a policy run over its iterations as HTML with SVG, which needs no script. A script shows values under the pointer.
#pragma once

#include <string>

#include "src/base/json.hpp"
#include "src/samples/policy_run.hpp"

namespace gyr {

// Panels of all plots for which the run has values. Appends the points of each plot to `plots`, an array.
std::string curves_html(const PolicyRun&, Json& plots);

}  // namespace gyr
