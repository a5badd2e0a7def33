// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/row_scores.hpp"

namespace gyr {

int micros_of(const Engine& engine, Grid& grid, Index samples) {
  return int(samples / (grid.layout().size(Axis::data) * engine.config().micro_batch_size));
}

namespace {

// Value of each row by of_row(score).
template <class F>
std::vector<double> row_scores(Engine& engine, const SampleSource& source, const Span& samples, const F& of_row) {
  Grid& grid = engine.grid();
  const EngineConfig& config = engine.config();
  const Index length = config.seq_length;
  std::vector<double> all(std::size_t(samples.size() * length), 0);
  const Scores found = engine.scores(feed(source, samples.first, config, grid), micros_of(engine, grid, samples.size()));
  if (grid.tensor().rank() > 0) return all;
  const SequenceLayout here = grid.layout().sequences(grid.position(), config.micro_batch_size, length);
  for (std::size_t micro = 0; micro < found.size(); ++micro) {
    const std::vector<RowScore>& rows = found[micro].rows;  // empty except on the last stage
    const Index first = first_sample(config.micro_batch_size, Index(micro), grid);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Index sequence = Index(r) / here.seq_length, token = here.place(Index(r) % here.seq_length);
      if (token < length) all[std::size_t((first + sequence) * length + token)] = of_row(rows[r]);
    }
  }
  return all;
}

}  // namespace

std::vector<double> row_log_probs(Engine& engine, const SampleSource& source, const Span& samples) {
  return row_scores(engine, source, samples, [](const RowScore& row) { return row.label == ignored_label ? 0 : -row.loss; });
}

std::vector<double> row_values(Engine& engine, const SampleSource& source, const Span& samples) {
  return row_scores(engine, source, samples, [](const RowScore& row) { return row.loss; });
}

}  // namespace gyr
