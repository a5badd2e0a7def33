// SPDX-License-Identifier: BSD-3-Clause
// One training step of a reference model, with the weights of its folder, on any grid.
#pragma once

#include "regression/support/cases.hpp"
#include "regression/support/golden.hpp"
#include "src/pretrained/weights.hpp"
#include "src/verify/equality.hpp"

namespace gyr::testing {

// Runs one sequence per micro-batch, distributed over the data-parallel ranks. The gradients are complete on every
// rank.
template <class T>
StepOutcome step_of(const Golden& g, Grid& grid) {
  const int data = grid.layout().size(Axis::data), micros = int(g.batch.batch) / data;
  EngineConfig config;
  config.model = g.model;
  config.micro_batch_size = 1, config.seq_length = g.batch.seq_length, config.source_length = g.batch.source.length, config.micros = micros;
  Rig<T> rig(config, grid);
  load_weights(g.folder, rig.engine);
  const auto source = [&](int micro) { return one_sequence(g.batch, Index(micro) * data + grid.coordinate(Axis::data)); };
  const StepResult result = rig.engine.gradients(source, micros, 1);
  return {result, gathered_gradients(rig.engine)};
}

}  // namespace gyr::testing
