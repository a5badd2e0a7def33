// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/policy/window_samples.hpp"
#include "src/report/iteration_report.hpp"

namespace gyr {

// Metrics of the answers of an iteration. `seconds`: time that they took.
IterationReport figures_of(const Rollouts&, const Targets&, const PolicyConfig&, double seconds);

}  // namespace gyr
