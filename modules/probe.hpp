// SPDX-License-Identifier: BSD-3-Clause
// Looks at a step's numbers as they come into being, where somebody wants to see them.
#pragma once

#include <span>
#include <string>

#include "modules/weight.hpp"

namespace gyr {

enum class Seen { activation, gradient };  // the gradient is that of the step's loss with respect to the activation of that name

template <class T>
class Probe {
 public:
  virtual ~Probe() = default;
  // What is seen from now on belongs to this rank's micro-batch number `micro` of the step.
  virtual void micro_batch(int micro) = 0;
  // This rank's columns (rows of the micro-batch, its share) of an activation that has `columns` of them, dealt as the pieces say.
  // They are read before this returns.
  virtual void see(Seen, const std::string& name, Matrix<const T> numbers, Index columns, std::span<const Piece>) = 0;
  // The gradients of the weights are whole, and no weight has changed yet. Called on every rank.
  virtual void gradients_are_whole() = 0;
};

}  // namespace gyr
