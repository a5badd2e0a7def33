// SPDX-License-Identifier: BSD-3-Clause
// The plan of a run as text: parameters, layout, flops, bytes of every kind of rank by category, traffic of every communicator.
#pragma once

#include <string>

#include "src/commands/cluster_report.hpp"

namespace gyr {

// With a machine also how long it takes there; `tokens`: of the training, 0: as many as the deck's steps have.
std::string plan_report(const RunConfig&, int ranks, const Machine* = nullptr, double tokens = 0);

}  // namespace gyr
