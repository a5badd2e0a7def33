// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "src/commands/run_plan.hpp"
#include "src/planner/machine/profile.hpp"
#include "src/planner/predict/link_traffic.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr {

// What a plan is told of the machine.
struct Machine {
  Cluster cluster;
  std::optional<Profile> profile;
};

// A planned run on a machine that has room for its ranks.
struct PredictedRun {
  PredictedRun(const RunPlan&, const Machine&);

  StagePlans plans;
  StepTimeline step;
  LinkTraffic traffic;
  const Prediction& longest() const { return step.of_rank[std::size_t(step.longest)]; }
};

// What the rank that computes longest waits for other stages and their messages; what rounding leaves below nothing is nothing.
inline double bubble(const Prediction& p) { return std::max(0.0, p.messages + p.rest); }
// Part of the devices' peak that a step of so many seconds makes of them, by the model's minimal flops (modules/cost/flops.hpp).
double utilisation(const RunConfig&, int ranks, const Cluster&, double seconds);
// How long a step takes there, of what that time is made, and what training takes. `tokens`: of the training; 0: what the deck's steps are.
Facts prediction_facts(const RunPlan&, const PredictedRun&, const Machine&, double tokens);
// The bytes of each kind of link, communicator and operation, and what part of all they are.
std::vector<std::vector<std::string>> link_rows(const LinkTraffic&);
// In a sentence, of what the prediction is made, and what is not in it.
std::string source_text(const Machine&);
inline constexpr const char* not_predicted =
    "Not in it: reading of data, saving, what other jobs do to the network, and experts that are chosen unevenly.";
inline constexpr const char* links_explained = "all ranks together; sums and gathers go around a ring of the ranks in their order";
std::string cluster_report(const RunPlan&, const PredictedRun&, const Machine&, double tokens);

}  // namespace gyr
