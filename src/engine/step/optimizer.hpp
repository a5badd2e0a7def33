// SPDX-License-Identifier: BSD-3-Clause
// AdamW over a stage's parameters, or over the parts of them that this rank updates: master weights and moments in the accumulator's precision,
// weight decay and learning rate per group of parameters.
#pragma once

#include "kernels/ops/adamw.hpp"
#include "src/engine/config/optimizer_config.hpp"
#include "src/engine/model/stage.hpp"
#include "src/engine/step/graph_replay.hpp"

namespace gyr {

class Optimizer {
 public:
  // Its state lies in the arena, and the numbers of a step beside the weights.
  Optimizer(const OptimizerConfig&, Parameters&, Arena& arena, Arena& weights);

  // Sets the moments to zero and takes the weights' current values as masters.
  void reset(Device&);

  // Adds the sum of squares of the gradients this rank counts, every logical element once over the ranks of a replica, or over all where the
  // optimizer is cut, to `sum` (1) on the device.
  void add_gradient_squares(Device&, Tensor1<double> sum) const;
  // One update with gradients scaled by gradient_scale; `step` counts from 1.
  void step(Device&, double lr, std::int64_t step, double gradient_scale);

  // Where the state of a trained parameter lies: first moment, second moment, master. The master is the weight itself where absent.
  Piece moment1(const Parameter& p) const { return part(m_, p); }
  Piece moment2(const Parameter& p) const { return part(v_, p); }
  Piece master(const Parameter& p) const { return has_master(p) ? part(master_, p) : Piece(); }
  bool has_master(const Parameter& p) const { return p.dtype() != accumulator_of(p.dtype()) && p.trained; }

 private:
  ParameterGroup group(const Parameter&) const;
  AnyTensor step_of(std::size_t i) const;  // the i-th of those that are updated
  void upload_inputs(Device&, double lr, std::int64_t step, double gradient_scale);
  void update(Device&);
  Piece part(const AnyTensor& run, const Parameter& p) const {
    ensure(p.trained, "{} is frozen and has no optimizer state", p.weight.name);
    return p.kept_in(run);
  }

  OptimizerConfig c_;
  Parameters& parameters_;
  AnyTensor m_, v_, master_;
  std::vector<Parameter*> updated_;  // here
  AnyTensor steps_;                  // of each its AdamWStepValues
  GraphReplay updates_;
};

}  // namespace gyr
