// SPDX-License-Identifier: BSD-3-Clause
// AdamW over the parameters of a stage, or over this rank's shards of them. Master weights and moments have the
// accumulator's precision. Weight decay and learning rate can be set per group of parameters.
#pragma once

#include "kernels/ops/adamw.hpp"
#include "src/engine/config/optimizer_config.hpp"
#include "src/engine/model/stage.hpp"
#include "src/engine/step/graph_replay.hpp"

namespace gyr {

class Optimizer {
 public:
  // `arena` holds the optimizer state; `weights` holds the AdamW coefficients of a step.
  Optimizer(const OptimizerConfig&, Parameters&, Arena& arena, Arena& weights);

  // Sets the moments to zero and copies the current weights into the master weights.
  void reset(Device&);

  // Adds the sum of squared gradients to `sum` (1) on the device. Every logical element is counted once over the ranks
  // of a replica, or over all ranks if the optimizer is sharded.
  void add_gradient_squares(Device&, Tensor1<double> sum) const;
  // One update with gradients multiplied by gradient_scale. `step` counts from 1.
  void step(Device&, double lr, std::int64_t step, double gradient_scale);

  // State of a trained parameter: first moment, second moment, master weight. Without a master, the weight itself is
  // the master.
  Piece moment1(const Parameter& p) const { return part(m_, p); }
  Piece moment2(const Parameter& p) const { return part(v_, p); }
  Piece master(const Parameter& p) const { return has_master(p) ? part(master_, p) : Piece(); }
  bool has_master(const Parameter& p) const { return p.dtype() != accumulator_of(p.dtype()) && p.trained; }

 private:
  ParameterGroup group(const Parameter&) const;
  AnyTensor step_of(std::size_t i) const;  // AdamW coefficients of the i-th updated parameter
  void upload_inputs(Device&, double lr, std::int64_t step, double gradient_scale);
  void update(Device&);
  Piece part(const AnyTensor& run, const Parameter& p) const {
    ensure(p.trained, "{} is frozen and has no optimizer state", p.weight.name);
    return p.kept_in(run);
  }

  OptimizerConfig c_;
  Parameters& parameters_;
  AnyTensor m_, v_, master_;
  std::vector<Parameter*> updated_;  // trained parameters of which this rank updates at least one element
  AnyTensor steps_;                  // on the device: AdamWStepValues of each updated parameter
  GraphReplay updates_;
};

}  // namespace gyr
