// SPDX-License-Identifier: BSD-3-Clause
// Published steps of others' runs (published_steps.csv) as decks of ours: what the planner's constants are fitted to, and what it is judged by.
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
  double parameters;  // in 1e9
  int heads, hidden, layers, tensor, pipeline, data, devices, batch;
  int micro_batch, virtual_stages;  // 0: not published
  double seconds;
  std::string name() const { return fmt::format("{} {}B on {}", source, parameters, devices); }
};

std::vector<PublishedStep> published_steps();  // in the order of the file
// The file under input/clusters/ that describes the machine of a source, and has constants that are fitted to its steps.
std::string cluster_file(const std::string& source);
// That of the same machine with the software of an earlier paper; empty: there is none.
std::string earlier_cluster_file(const std::string& source);

// A way in which such a step may have been run.
struct Way {
  int micro_batch, virtual_stages;
};
// The published way, or those that a step of whose way nothing is known may have been run in.
std::vector<Way> ways_of(const PublishedStep&);
RunConfig run_of(const PublishedStep&, const Way&);

// A step in all its ways that fit the memory of its machine, counted once and timed with any constants.
class PlannedStep {
 public:
  PlannedStep(const PublishedStep&, const Cluster&);
  // Of the fastest way: who ran it looked for that.
  double seconds(const Cluster&) const;
  std::string fastest(const Cluster&) const;  // "micro-batch 1, 6 virtual stages"
  Prediction prediction(const Cluster&) const;
  // Looks at no other way from now on: for fits, in which thousands of constants are tried.
  void settle(const Cluster&);
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

// The constants, from those that the cluster has, by which the sum of the squares of log(predicted / published) is least.
Cluster fitted(Cluster, const std::vector<const PlannedStep*>&, int rounds);
double error_of(const PlannedStep&, const Cluster&);  // predicted / published - 1

}  // namespace gyr::testing
