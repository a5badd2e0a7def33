// SPDX-License-Identifier: BSD-3-Clause
// Dropout on grids of up to 8 ranks: the mask of a head, channel or token depends on its index in the full model, and
// not on the rank that holds it.
#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::dropout_suite {
namespace {

constexpr Index seq_length = 21, source_length = 13;  // lengths that are padded with context parallel
constexpr int micros_of_all = 4;

struct Shape {
  int data, pipeline, context, tensor;
};
constexpr Shape shapes[] = {{1, 1, 1, 2}, {4, 1, 1, 2}, {1, 2, 1, 2}, {2, 2, 2, 1}, {1, 1, 2, 2}, {1, 2, 2, 2}};

// Model with dropout and the given pattern, which may contain an encoder.
ModelConfig model_of(const std::string& pattern) {
  ModelConfig m = named("T2").model;
  m.pattern = pattern;
  m.dropout = {0.2, 0.3, 0.4, 0};
  return m;
}

NamedGradients gradients_on(Grid& grid, const ModelConfig& m) {
  const int data = grid.layout().size(Axis::data), micros = micros_of_all / data;
  const bool encodes = m.pattern.find('>') != std::string::npos;
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = 1, c.seq_length = seq_length, c.micros = micros;
  if (encodes) c.source_length = source_length;
  Rig<double> rig(c, grid);
  rig.engine.initialise(7);
  const auto source = [&](int micro) {
    const Index number = Index(micro) * data + grid.coordinate(Axis::data);
    MicroBatch batch = micro_batch(number, 1, seq_length, m.vocab_size);
    if (encodes) batch.source.tokens = micro_batch(1000 + number, 1, source_length, m.vocab_size).tokens, batch.source.length = source_length;
    return batch;
  };
  rig.engine.gradients(source, micros, 3);
  return gathered_gradients(rig.engine);
}

TEST(dropout, dropout_gradients_equal_those_of_one_rank) {
  for (const char* pattern : {"*->*X-", "PP", "*-M-"}) {
    const ModelConfig m = model_of(pattern);
    const Index layers = m.layers();
    const NamedGradients expected = gradients_on(single_rank_grid(layers), m);
    for (const Shape& s : shapes) {
      const std::vector<Span> stages = s.pipeline == 1 ? std::vector<Span>{{0, layers}} : std::vector<Span>{{0, layers / 2}, {layers / 2, layers}};
      const Layout layout = grid_layout(s.data, s.pipeline, s.tensor, stages, {}, {}, s.context);
      Grid* const grid = grid_of(layout);
      if (grid) expect_same_gradients(gradients_on(*grid, m), expected, 1e-12, pattern + (" on " + layout.text()));
    }
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::dropout_suite
