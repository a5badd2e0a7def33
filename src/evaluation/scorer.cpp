// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/scorer.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/engine/dry_run/plan.hpp"
#include "src/engine/model/source_padding.hpp"

namespace gyr {

namespace {

constexpr std::size_t batches_in_pipeline = 16;  // number of batches that a data-parallel rank computes at once, enough to fill a pipeline

// Positions of a passage in a batch: those in its documents, and then padding, which is a document of its own. Empty if
// no other token sees the padding: with causal attention, padding after the last token affects nothing before it.
std::vector<std::int32_t> positions_with_padding(const Passage& p, bool causal, Index seq_length) {
  std::vector<std::int32_t> positions = p.positions;
  if (positions.empty() && causal) return positions;
  for (Index t = Index(positions.size()); t < Index(p.tokens.size()); ++t) positions.push_back(std::int32_t(t));
  for (Index t = 0; Index(positions.size()) < seq_length; ++t) positions.push_back(std::int32_t(t));
  return positions;
}

EncoderInput neighbours_of(const std::vector<Passage>& members, const RetrievalConfig& c) {
  std::vector<NeighboursOfText> texts;
  for (const Passage& p : members) texts.push_back({p.neighbours, p.neighbour_lengths});
  return encoder_input_of(texts, c);
}

MicroBatch padded(const Passages& passages, const Batch& batch, const ModelConfig& model) {
  MicroBatch m{Index(batch.members.size()), batch.seq_length, {}, {}, {}};
  m.source.length = reads_neighbours(model) ? 0 : passages.source_length;
  std::vector<Passage> members;
  for (const Index i : batch.members) {
    const Passage& p = members.emplace_back(passages.make(i));
    m.tokens.insert(m.tokens.end(), p.tokens.begin(), p.tokens.end());
    m.labels.insert(m.labels.end(), p.labels.begin(), p.labels.end());
    append_source(p.source, m.source);
    m.lengths.push_back(Index(p.tokens.size()));
    const auto positions = positions_with_padding(p, model.attention.causal || batch.members.size() == 1, batch.seq_length);
    m.positions.insert(m.positions.end(), positions.begin(), positions.end());
    m.tokens.resize(m.labels.size() + batch.seq_length - p.tokens.size(), 0);
    m.labels.resize(m.tokens.size(), ignored_label);
    append_values(model.objective->fields(model, batch.seq_length), p.values, batch.seq_length, m.values);
  }
  if (reads_neighbours(model)) m.source = neighbours_of(members, model.retrieval);
  return m;
}

// Memory by category that is enough for all batches: the maximum over the longest batch of each size.
Capacity capacity_of(EngineConfig config, const Grid& grid, const std::vector<Batch>& batches) {
  std::map<Index, Index> longest;
  for (const Batch& batch : batches) {
    Index& seq_length = longest[Index(batch.members.size())];
    seq_length = std::max(seq_length, batch.seq_length);
  }
  Capacity most;
  for (const auto& [members, length] : longest) {
    config.micro_batch_size = members, config.seq_length = length;
    most = most_of(most, predicted_capacity(config, grid.layout(), grid.position()));
  }
  return most;
}

void add_up(PassageScore& score, const RowScore& token) {
  score.loss += token.loss;
  score.squares += token.loss * token.loss;
  score.tokens += 1;
  score.hits += token.shortfall <= 0;
}

// Row scores by passage. One rank computes them and then sends them to all ranks.
using RowScores = std::map<Index, std::vector<RowScore>>;

// Computes the scores of some batches. Tensor rank 0 of the last stage adds them to the scores of the passages.
void score(Engine& engine, const Passages& passages, const std::vector<const Batch*>& batches, std::vector<PassageScore>& scores,
           const Counted& counted, RowScores& rows) {
  std::vector<MicroBatch> micros;
  for (const Batch* batch : batches) micros.push_back(padded(passages, *batch, engine.config().model));
  const auto each = engine.scores([&](int i) { return micros[i]; }, int(micros.size()));
  if (engine.grid().tensor().rank() != 0) return;
  for (std::size_t i = 0; i < micros.size(); ++i) {
    const std::vector<RowScore>& row_scores = each[i].rows;
    if (counted.figures) counted.figures->add(each[i]);
    for (std::size_t r = 0; r < row_scores.size(); ++r) {  // stages before the last have no rows
      if (const Index at = Index(r) % batches[i]->seq_length, passage = batches[i]->members[r / batches[i]->seq_length];
          passages.on_scores && at < passages.lengths[passage])
        rows[passage].push_back(row_scores[r]);
      if (micros[i].labels[r] == ignored_label) continue;
      add_up(scores[batches[i]->members[r / batches[i]->seq_length]], row_scores[r]);
      if (counted.classes) counted.classes->add(micros[i].labels[r], row_scores[r].likeliest);
    }
  }
}

// Sends the row scores of these passages to all ranks.
void report_scores(Grid& grid, Device& dev, const Passages& passages, const std::vector<const Batch*>& batches, const RowScores& here) {
  std::vector<double> values;
  const auto each = [&](const auto& visit) {
    std::size_t at = 0;
    for (const Batch* batch : batches)
      for (const Index passage : batch->members) visit(passage, at), at += 3 * std::size_t(passages.lengths[passage]);
    return at;
  };
  values.assign(each([](Index, std::size_t) {}), 0);
  each([&](Index passage, std::size_t at) {
    if (const auto found = here.find(passage); found != here.end())
      for (const RowScore& row : found->second) values[at++] = row.loss, values[at++] = row.shortfall, values[at++] = double(row.likeliest);
  });
  grid.world().start_all_reduce(dev, Tensor1<double>(values.data(), values.size())).host_wait();
  each([&](Index passage, std::size_t at) {
    std::vector<RowScore> rows;
    for (Index r = 0; r < passages.lengths[passage]; ++r, at += 3) rows.push_back({values[at], values[at + 1], Token(values[at + 2])});
    passages.on_scores(passage, rows);
  });
}

// All-reduces the scores. Each value comes from one rank and is 0 on the others.
void sum_over_ranks(Grid& grid, Device& dev, std::vector<PassageScore>& scores, const Counted& counted) {
  static_assert(sizeof(PassageScore) == 4 * sizeof(double));
  grid.world().start_all_reduce(dev, Tensor1<double>(&scores.front().loss, 4 * scores.size())).host_wait();
  if (ClassCounts* const classes = counted.classes)
    grid.world().start_all_reduce(dev, Tensor1<double>(classes->values().data(), classes->values().size())).host_wait();
  if (counted.figures) counted.figures->sum_over_ranks(grid, dev);
}

// Exit::numeric if a score is not finite. All ranks have the same scores and fail with the same message.
void require_finite_scores(const std::vector<PassageScore>& scores) {
  const auto bad = [](const PassageScore& s) { return !std::isfinite(s.loss); };
  const auto first = std::find_if(scores.begin(), scores.end(), bad);
  require(
      first == scores.end(), Exit::numeric,
      "the loss of sequence {} is {}, and {} of {} are not finite: the weights are not finite (`info --statistics` shows where), or too large for "
      "this precision",
      first - scores.begin(), first == scores.end() ? 0 : first->loss, std::count_if(first, scores.end(), bad), scores.size());
}

}  // namespace

std::vector<PassageScore> score_passages(const ModelConfig& model, DType precision, Grid& grid, const Fill& fill, const Passages& passages,
                                         const BatchLimits& limits, LogitsFile* logits, Factors factors, const Counted& counted) {
  const std::vector<Batch> batches = plan_batches(passages.lengths, limits);
  EngineConfig config;
  config.model = model;
  config.precision = precision;
  config.training = false;
  config.factors = factors;
  config.seq_length = 0;
  config.source_length = passages.source_length;
  for (const Batch& batch : batches) config.seq_length = std::max(config.seq_length, batch.seq_length);
  const Capacity capacity = capacity_of(config, grid, batches);
  Timers timers(engine_timer_names());
  Engine engine(config, grid, &capacity, timers);
  fill(engine.stage());

  if (logits) logits->attach(engine.stage());

  // Each data-parallel rank computes one batch per round. When logits are written, all ranks exchange them after every
  // round.
  const std::size_t sharers = grid.layout().size(Axis::data), rounds = (batches.size() + sharers - 1) / sharers,
                    at_once = logits || grid.layout().size(Axis::pipeline) == 1 ? 1 : batches_in_pipeline;
  const auto batch_of = [&](std::size_t round, std::size_t data) {
    return round * sharers + data < batches.size() ? &batches[round * sharers + data] : nullptr;
  };
  std::vector<PassageScore> scores(passages.count());
  for (std::size_t first = 0; first < rounds; first += at_once) {
    std::vector<const Batch*> here;
    for (std::size_t round = first; round < std::min(rounds, first + at_once); ++round)
      if (const Batch* batch = batch_of(round, grid.coordinate(Axis::data))) here.push_back(batch);
    RowScores rows;
    if (!here.empty()) score(engine, passages, here, scores, counted, rows);
    std::vector<const Batch*> all;
    for (std::size_t round = first; round < std::min(rounds, first + at_once); ++round)
      for (std::size_t data = 0; data < sharers; ++data) all.push_back(batch_of(round, data));
    if (logits) logits->write(engine.device(), all);
    std::erase(all, nullptr);
    if (passages.on_scores) report_scores(grid, engine.device(), passages, all, rows);
    if (counted.progress) counted.progress(std::min(batches.size(), (first + at_once) * sharers), batches.size());
  }
  sum_over_ranks(grid, engine.device(), scores, counted);
  require_finite_scores(scores);
  return scores;
}

}  // namespace gyr
