// SPDX-License-Identifier: BSD-3-Clause
// The critic of a policy (deck section models.critic): a model with a scalar head that is trained beside the policy, on a grid of its own over all
// ranks of the run. Its checkpoints lie in OUTPUT/critic/checkpoints. One of step N is complete before that of the policy is committed.
#pragma once

#include "src/checkpoint/checkpoint.hpp"
#include "src/train/scoring_models.hpp"
#include "src/train/step_source.hpp"

namespace gyr {

class Critic {
 public:
  // `world`: the ranks of the run in order. `working`: as for ScoringModels. Collective, as all functions but check_checkpoint().
  Critic(PlannedModel, MPI_Comm world, const Arena& working, ProgressRecord&);
  ~Critic();

  void begin();                                       // initial weights, and a reset optimizer
  void load(const std::filesystem::path& of_policy);  // the checkpoint beside this one of the policy
  // Throws the error of load() without reading a tensor. Exit::data if there is no such checkpoint.
  void check_checkpoint(const std::filesystem::path& of_policy) const;
  // Saves both models: `of_policy` saves the policy.
  std::unique_ptr<StateSaver> saver(std::unique_ptr<StateSaver> of_policy);

  // Values of the rows of samples, samples x seq_length, on every rank.
  std::vector<double> values(const StepSamples&);
  StepResult step(StepOrder, const StepSamples&);
  void check_replicas(Index step);
  const Capacity& capacity() const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
};

// Folder of the critic's checkpoint that belongs to one of the policy: RUN/checkpoints/step_N -> RUN/critic/checkpoints/step_N.
std::filesystem::path critic_checkpoint(const std::filesystem::path& of_policy);

}  // namespace gyr
