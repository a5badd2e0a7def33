// SPDX-License-Identifier: BSD-3-Clause
// Warnings about settings that are valid but probably mistakes.
#pragma once

#include <string>
#include <vector>

#include "src/config/run_config.hpp"

namespace gyr {

// One sentence each, with the remedy.
std::vector<std::string> doubtful_settings(const RunConfig&);

// Warning about an evaluation that reads a validation split of `samples` sequences more than once; empty if it does not.
std::string doubtful_evaluation(const RunConfig&, Index samples);

}  // namespace gyr
