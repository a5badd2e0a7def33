// SPDX-License-Identifier: BSD-3-Clause
// A hook on a training step: it is called with activations and their gradients as they are computed (dumps, the plan).
#pragma once

#include <span>
#include <string>

#include "kernels/ops/any_tensor.hpp"
#include "modules/weights/placement.hpp"

namespace gyr {

enum class Observed { activation, gradient };  // the gradient is that of the step's loss with respect to the activation of that name

class Hook {
 public:
  virtual ~Hook() = default;
  // What is observed from now on belongs to this rank's micro-batch number `micro` of the step.
  virtual void micro_batch(int micro) = 0;
  // Rows of the micro-batch from `first_row` on, and of these this rank's columns of an activation that has `columns` of them, in
  // one-dimensional boxes. They are read before this returns.
  virtual void observe(Observed, const std::string& name, const AnyMatrix& numbers, Index first_row, Index columns, std::span<const Held>) = 0;
  // The gradients of the weights are reduced, and no weight has changed yet. Called on every rank.
  virtual void gradients_are_reduced() = 0;
};

}  // namespace gyr
