// SPDX-License-Identifier: BSD-3-Clause
// Rules that need all elements of a matrix at once (Muon). Each rank updates what it can by itself, then the engine sends
// the directions of a whole matrix to one rank, its owner, which transforms them, and sends the result back
// (src/engine/step/matrix_owners.hpp).
#pragma once

#include "kernels/base/box.hpp"
#include "modules/optimizers/update_rule.hpp"

namespace gyr {

// A matrix within a flat run of elements: its rows are `stride` elements apart, the first one at `offset`.
struct StridedBlock {
  Index offset = 0, rows = 0, columns = 0, stride = 0;

  Index size() const { return rows * columns; }
  template <class A>
  Matrix<A> in(const AnyTensor& run) const {
    return {run.as<A>().data() + offset, rows, columns, stride};
  }
};

class MatrixRule : public UpdateRule {
 public:
  // Matrices that the rule transforms: boxes of the weight (rows x columns), disjoint and together the whole weight.
  virtual std::vector<Box> matrices(const Weight&) const = 0;
  // Floating-point operations to transform a matrix of this shape.
  virtual double flops(Index rows, Index columns) const = 0;
  // True if every rank that holds a part of a matrix transforms the whole of it, instead of its owner alone.
  virtual bool on_all_ranks() const { return false; }

  // update() computes the states of this rank's elements, but leaves the weight. Afterwards:
  // Writes the direction of the elements `here` of this rank to a block of another run, in the accumulator's precision.
  virtual void direction(Device&, const WeightUpdate&, const StridedBlock& here, const AnyTensor& to, const StridedBlock& there) const = 0;
  // Transforms a whole matrix of directions in place. May use scratch memory.
  virtual void transform(Device&, const AnyTensor2& matrix) const = 0;
  // Updates the elements `here` of the weight with a block of the transformed matrix.
  virtual void apply(Device&, const WeightUpdate&, const StridedBlock& here, const AnyTensor& from, const StridedBlock& there) const = 0;
};

}  // namespace gyr
