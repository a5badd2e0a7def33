// SPDX-License-Identifier: BSD-3-Clause
// Updates the parameters of a stage, or this rank's shards of them, each by its rule. Master weights and the states of
// rules have the accumulator's precision. Learning rate, weight decay and rule can be set per group of parameters.
#pragma once

#include <map>

#include "src/engine/config/optimizer_config.hpp"
#include "src/engine/model/stage.hpp"
#include "src/engine/step/graph_replay.hpp"
#include "src/engine/step/matrix_owners.hpp"

namespace gyr {

class Optimizer {
 public:
  // `arena` holds the optimizer state; `weights` holds the values of a step.
  Optimizer(const OptimizerConfig&, Parameters&, Grid&, Arena& arena, Arena& weights);

  // Sets the states to zero and copies the current weights into the master weights.
  void reset(Device&);

  // Adds the sum of squared gradients to `sum` (1) on the device. Every logical element is counted once over the ranks
  // of a replica, or over all ranks if the optimizer is sharded.
  void add_gradient_squares(Device&, Tensor1<double> sum) const;
  // One update. Parameter groups multiply the learning rate and the weight decay by their factors.
  void step(Device&, const StepOfWeight&);

  // A state of a trained parameter, absent if its rule has none of that name, and the master weight. Without a master, the
  // weight itself is the master.
  Piece state(const Parameter&, std::string_view name) const;
  Piece master(const Parameter& p) const { return has_master(p) ? p.kept_in(master_) : Piece(); }
  bool has_master(const Parameter& p) const { return p.dtype() != accumulator_of(p.dtype()) && p.trained; }

 private:
  // A trained parameter of which this rank updates at least one element.
  struct Updated {
    Parameter* parameter;
    const UpdateRule* rule;
    double lr_factor, weight_decay_factor;
    WeightUpdate update;  // without gradient and weight, whose memory may change from step to step
  };
  void allocate_states(Arena&);
  void allocate_sums(Arena&);
  WeightUpdate update_of(const Updated&) const;
  void upload_values(Device&, const StepOfWeight&);
  void add_sums(Device&);

  OptimizerConfig c_;
  Parameters& parameters_;
  Grid& grid_;
  AnyTensor master_;
  // States by name. Each is a run of the elements that this rank updates, without those whose rule does not keep it.
  std::map<std::string_view, std::map<const Parameter*, Piece>> states_;
  std::vector<AnyTensor> runs_;
  std::vector<Updated> updated_;
  AnyTensor values_;                     // on the device: values of the step for each updated parameter
  std::array<Tensor1<double>, 3> sums_;  // sums over whole weights, by HeldBy
  GraphReplay first_pass_, updates_;
  MatrixOwners matrices_;
};

}  // namespace gyr
