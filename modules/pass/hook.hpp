// SPDX-License-Identifier: BSD-3-Clause
// Hook of a training step, called with activations and their gradients as they are computed. Dumps record them; dry
// runs only report progress.
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
  // Everything observed from now on belongs to this rank's micro-batch `micro` of the step.
  virtual void micro_batch(int micro) = 0;
  // Rows of the micro-batch from `first_row` on, and this rank's columns of an activation of `columns` columns, as
  // one-dimensional boxes. The data are read before this returns.
  virtual void observe(Observed, const std::string& name, const AnyMatrix& values, Index first_row, Index columns, std::span<const Held>) = 0;
  // Called on every rank once weight gradients are reduced, before any weight changes.
  virtual void gradients_are_reduced() = 0;
};

}  // namespace gyr
