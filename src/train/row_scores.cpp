// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/row_scores.hpp"

namespace gyr {

int micros_of(const Engine& engine, Grid& grid, Index samples) {
  return int(samples / (grid.layout().size(Axis::data) * engine.config().micro_batch_size));
}

std::vector<double> row_log_probs(Engine& engine, const SampleSource& source, const Span& samples) {
  Grid& grid = engine.grid();
  const EngineConfig& config = engine.config();
  const Index length = config.seq_length;
  std::vector<double> log_probs(std::size_t(samples.size() * length), 0);
  const Scores found = engine.scores(feed(source, samples.first, config, grid), micros_of(engine, grid, samples.size()));
  if (grid.tensor().rank() > 0) return log_probs;
  const SequenceLayout here = grid.layout().sequences(grid.position(), config.micro_batch_size, length);
  for (std::size_t micro = 0; micro < found.size(); ++micro) {
    const std::vector<RowScore>& rows = found[micro].rows;  // empty except on the last stage
    const Index first = first_sample(config.micro_batch_size, Index(micro), grid);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Index sequence = Index(r) / here.seq_length, token = here.place(Index(r) % here.seq_length);
      if (rows[r].label != ignored_label && token < length) log_probs[std::size_t((first + sequence) * length + token)] = -rows[r].loss;
    }
  }
  return log_probs;
}

}  // namespace gyr
