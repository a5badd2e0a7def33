// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include "src/config/run_config.hpp"
#include "src/planner/cluster.hpp"
#include "src/planner/profile.hpp"

namespace gyr {

// What a plan is told of the machine.
struct Machine {
  Cluster cluster;
  std::optional<Profile> profile;
};

// How long a step of the run takes there, of what that time is made, and what training takes. `tokens`: of the training; 0: what the deck's steps
// are. `fullest`: bytes of the rank that takes most memory.
std::string cluster_report(const RunConfig&, const Layout&, const Machine&, double tokens, Index fullest);

}  // namespace gyr
