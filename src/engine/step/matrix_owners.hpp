// SPDX-License-Identifier: BSD-3-Clause
// Service for update rules that need whole matrices (modules/optimizers/matrix_rule.hpp): sends the directions of each
// matrix to its owner, which transforms them, and sends the result back to all ranks that hold the weight. Exchanges of
// one round overlap with the transforms of its neighbours.
#pragma once

#include <functional>

#include "modules/optimizers/matrix_rule.hpp"
#include "src/engine/config/optimizer_config.hpp"
#include "src/parallel/grid.hpp"
#include "src/parallel/matrix_rounds.hpp"

namespace gyr {

HeldBy holders_of(const Weight&);

class MatrixOwners {
 public:
  // Creates communicators, which is collective over the grid, if a rule of the configuration needs whole matrices.
  MatrixOwners(const OptimizerConfig&, const Parameters&, Grid&);

  // Updates all weights whose rule needs whole matrices. `operands`: those of the update of a parameter of which this rank
  // updates some elements. Buffers and workspaces are scratch memory.
  using OperandsOf = std::function<const WeightUpdate&(const Parameter&)>;
  void run(Device&, const OperandsOf& operands);

 private:
  struct Matrix {
    const Parameter* parameter;
    const MatrixRule* rule;
    Index rows, columns;
  };
  // Matrices that the same ranks hold and whose rule distributes them alike.
  struct Shared {
    Communicator* ranks;
    bool on_all_ranks;
    bool parts_differ;  // false: every holder has whole matrices
    std::vector<Matrix> matrices;
    std::vector<MatrixRound> rounds;
    LargestRound largest;
  };
  class Exchange;
  void add(HeldBy, bool on_all_ranks, const OptimizerConfig&, const Parameters&, Grid&);

  DType dtype_;  // of directions
  std::vector<Shared> shared_;
};

}  // namespace gyr
