// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "src/base/quantity.hpp"
#include "src/commands/run_plan.hpp"
#include "src/planner/machine/profile.hpp"
#include "src/planner/policy/iteration_times.hpp"
#include "src/planner/predict/link_traffic.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr {

// Description of the machine that a prediction is for.
struct Machine {
  Cluster cluster;
  std::optional<Profile> profile;
};

// A planned run with the predicted step on a machine. The machine must have a device for each rank.
struct PredictedRun {
  PredictedRun(const RunPlan&, const Machine&);

  StagePlans plans;
  StepTimeline step;
  LinkTraffic traffic;
  std::optional<IterationTimes> iteration;  // of policy training
  const Prediction& longest() const { return step.of_rank[std::size_t(step.longest)]; }
};

// Seconds that the rank that computes longest waits for other pipeline stages and their messages; negative rounding
// errors become 0.
inline double bubble(const Prediction& p) { return std::max(0.0, p.messages + p.rest); }
// Model FLOPs utilisation (MFU), a fraction: the model's minimal FLOPs (modules/cost/flops.hpp) over the devices' peak FLOPs
// in a step of `seconds`.
double utilisation(const RunConfig&, int ranks, const Cluster&, double seconds);
// Duration, energy and price of a training run of `tokens` tokens at `rate` tokens/s. The energy is that of the devices
// alone.
struct TrainingCost {
  double seconds, joules, price;  // joules, price: 0 if the power or the price of a device is unknown
};
TrainingCost training_cost(double tokens, double rate, int ranks, const Cluster&);
// Time, price and energy of iterations of policy training that generate `tokens` (0: those of the deck), with all their calls.
std::string iterations_text(const RunConfig&, double tokens, const IterationTimes&, int ranks, const Cluster&);
// True if predictions were compared with measured steps of such long sequences.
bool is_judged_length(const RunConfig&);
// Half width of the error bar of a predicted time, as a fraction: the error judged on steps of this program, on one rank; otherwise an
// estimate; 0 if predictions of such runs or on this machine were not judged at all.
double error_of(const RunConfig&, int ranks, const Cluster&);
// ... as text: " ± 11.2 %"; empty if it is 0.
std::string error_bar(const RunConfig&, int ranks, const Cluster&);
// Days of a training run with their error bar, "27.4 ± 3.1", and as many digits as the error determines.
std::string days_text(const RunConfig&, int ranks, const Cluster&, const TrainingCost&);
// The kinds of evidence that the error bar was judged on.
std::string error_text(const RunConfig&, int ranks, const Cluster&);
// Price in the currency of the cluster file, as in "161 k EUR".
std::string money_text(double price, const Cluster&);
// Names the ideal values that a prediction takes because the cluster file does not set them; empty if there are none.
std::string defaults_text(const Cluster&);
// Seconds that a checkpoint takes to write, from the bandwidth of the storage.
double save_seconds(const RunConfig&, const Layout&, const Cluster&);
std::string save_text(const RunConfig&, const Layout&, const Cluster&);

// Predicted step time, its parts, and the time of the training run. `tokens`: number of tokens of the full training
// run; 0: those of the deck's steps.
Facts prediction_facts(const RunPlan&, const PredictedRun&, const Machine&, double tokens);
// Rows of link, communicator, operation, bytes as text, and percentage of all bytes.
std::vector<std::vector<std::string>> link_rows(const LinkTraffic&, const std::function<std::string(double)>& text = mebi);
// Sentence that names the cluster and the source of its kernel and link times.
std::string source_text(const Machine&);
inline constexpr const char* not_predicted =
    "The prediction excludes data loading, checkpoints, network traffic of other jobs, and unbalanced expert routing.";
inline constexpr const char* links_explained = "sum over all ranks; collectives are counted as rings in rank order";
std::string cluster_report(const RunPlan&, const PredictedRun&, const Machine&, double tokens);

// Exit::config if a rank needs more memory than its device has, or offloads more than its host has. Names the largest part
// and the keys that make it smaller. `machine`: null to compare with memory.device_bytes, if it is set.
void require_fits(const RunPlan&, const Machine* machine);
// Bytes of the rank that fills its device most; empty if a rank does not fit in its device, or its offloaded bytes in the host.
std::optional<double> bytes_if_fits(const RunPlan&, const Cluster&);

}  // namespace gyr
