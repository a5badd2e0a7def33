// SPDX-License-Identifier: BSD-3-Clause
// Published step times of other training programs (published_steps.csv) as decks. The planner's constants are fitted to
// them and judged by them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr::testing {

struct PublishedStep {
  std::string source;
  double parameters;  // billions of parameters
  int heads, hidden, layers, tensor, pipeline, data, devices, batch;
  int micro_batch, virtual_stages;  // 0: not published
  double seconds;
  std::string name() const { return fmt::format("{} {}B on {}", source, parameters, devices); }
};

std::vector<PublishedStep> published_steps();  // in file order
// File in input/clusters/ that describes the machine of a source. Its constants are fitted to the steps of that source.
std::string cluster_file(const std::string& source);
// Cluster file of the same machine with the software of an earlier paper; empty if there is none.
std::string earlier_cluster_file(const std::string& source);

// One way in which a published step may have been run: micro-batch size and number of virtual pipeline stages.
struct Way {
  int micro_batch, virtual_stages;
};
// Returns the published way, or all plausible ways if micro-batch and virtual stages were not published.
std::vector<Way> ways_of(const PublishedStep&);
RunConfig run_of(const PublishedStep&, const Way&);

// A published step in every way that fits into its machine's memory. The plans are made once and timed with any
// constants.
class PlannedStep {
 public:
  PlannedStep(const PublishedStep&, const Cluster&);
  // Predicted time of the fastest way, which the authors presumably chose.
  double seconds(const Cluster&) const;
  std::string fastest(const Cluster&) const;  // micro-batch size and virtual stages of the fastest way, e.g. "1 / 6"
  Prediction prediction(const Cluster&) const;
  // Keeps only the way that is fastest with these constants. Fits use this, because they try thousands of constants.
  void predict_seconds(const Cluster&);
  const PublishedStep& published() const { return published_; }

 private:
  struct Planned {
    Way way;
    EngineConfig config;
    Layout layout;
    std::shared_ptr<const StagePlans> plans;
  };
  std::size_t best(const Cluster&) const;
  PublishedStep published_;
  std::vector<Planned> ways_, all_;
};

// Fits the constants of a cluster, starting from the current ones, by minimizing the sum of squares of log(predicted /
// published).
Cluster fitted(Cluster, const std::vector<const PlannedStep*>&, int rounds);
double error_of(const PlannedStep&, const Cluster&);  // predicted / published - 1

}  // namespace gyr::testing
