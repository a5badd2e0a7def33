// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/feed.hpp"

#include <algorithm>
#include <cmath>

namespace gyr {

namespace {

DatasetOptions dataset_options(const RunConfig& run, Split which, Index samples) {
  DatasetOptions o;
  for (std::size_t i = 0; i < run.data.prefixes.size(); ++i)
    o.corpora.push_back({run.data.prefixes[i], run.data.weights.empty() ? std::nullopt : std::optional(run.data.weights[i])});
  o.split = run.data.split;
  o.which = which;
  o.seq_length = run.train.seq_length;
  o.seed = run.data.seed;
  o.order = parse_sample_order(run.data.order);
  o.separate = run.data.separate;
  o.samples = samples;
  o.vocab_size = run.model.vocab_size;
  return o;
}

}  // namespace

// Steps of one batch are counted together: up to the one after which the ramp asks for another.
Index samples_of(const RunConfig& run) {
  Index samples = 0;
  for (Index left = run.train.steps; left > 0;) {
    const Index batch = run.batch_after(double(samples * run.train.seq_length));
    const auto same = [&](Index steps) { return run.batch_after(double((samples + steps * batch) * run.train.seq_length)) == batch; };
    Index taken = 1;
    double next = HUGE_VAL;  // tokens at which the ramp goes on
    for (const BatchStep& step : run.train.ramp)
      if (step.tokens > double(samples * run.train.seq_length)) next = std::min(next, step.tokens);
    const double until = (next / double(run.train.seq_length) - double(samples)) / double(batch);  // steps, to rounding
    taken = until >= double(left) + 1 ? left : std::clamp<Index>(Index(until) - 1, 1, left);
    while (taken < left && same(taken)) ++taken;
    samples += taken * batch;
    left -= taken;
  }
  return samples;
}

Dataset training_set(const RunConfig& run) { return Dataset(dataset_options(run, Split::train, samples_of(run))); }

Dataset validation_set(const RunConfig& run) {
  return Dataset(dataset_options(run, Split::validation, run.train.eval_batches * run.largest_batch()));
}

MicroBatch read_micro_batch(const Dataset& dataset, Index first, Index batch, Index seq_length) {
  MicroBatch m{batch, seq_length, {}, {}, {}};
  for (Index b = 0; b < batch; ++b) {
    const Sample s = dataset.sample(first + b);
    m.tokens.insert(m.tokens.end(), s.tokens.begin(), s.tokens.end() - 1);
    if (!s.positions.empty()) m.positions.insert(m.positions.end(), s.positions.begin(), s.positions.end() - 1);
    const std::vector<Token> labels = s.labels(ignored_label);
    m.labels.insert(m.labels.end(), labels.begin(), labels.end());
  }
  return m;
}

MicroBatches feed(const Dataset& dataset, Index first, const EngineConfig& config, Grid& grid) {
  return [=, &dataset, &grid, micro = config.micro_batch_size, seq_length = config.seq_length](int i) {
    return read_micro_batch(dataset, first + first_sample(micro, i, grid), micro, seq_length);
  };
}

template <class T>
std::optional<double> validation_loss(Engine<T>& engine, const Dataset& dataset, Index batches, Index batch, const std::function<bool()>& stop) {
  const Index micros = batch / (engine.grid().layout().size(Axis::data) * engine.config().micro_batch_size);
  double loss = 0;
  Index tokens = 0;
  for (Index i = 0; i < batches; ++i) {
    const auto [sum, count] = engine.evaluate(feed(dataset, i * batch, engine.config(), engine.grid()), int(micros));
    loss += sum, tokens += count;
    if (stop && i + 1 < batches && stop()) return {};
  }
  require(tokens > 0, Exit::data, "no token of the {} validation batches is to be predicted; take more of them, or longer sequences", batches);
  return loss / double(tokens);
}

template std::optional<double> validation_loss<double>(Engine<double>&, const Dataset&, Index, Index, const std::function<bool()>&);
template std::optional<double> validation_loss<float>(Engine<float>&, const Dataset&, Index, Index, const std::function<bool()>&);
template std::optional<double> validation_loss<bf16>(Engine<bf16>&, const Dataset&, Index, Index, const std::function<bool()>&);

}  // namespace gyr
