// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/stage_contents.hpp"

#include <algorithm>

#include "modules/cost/flops.hpp"
#include "modules/model/bundle_shapes.hpp"
#include "src/base/precision.hpp"
#include "src/config/layout_rules.hpp"

namespace gyr {

StageContents::StageContents(const RunConfig& run, const Cluster& cluster) : run_(run), cluster_(cluster), types_(run.model) {}

// Stages follow each other on the islands, independent of the size of their axes, unless the deck permutes the ranks.
StageContents::Key StageContents::key_of(const LayoutChoice& c) const {
  if (run_.parallel.permutation.empty()) return {c.pipeline, c.virtual_stages};
  return {c.pipeline, c.virtual_stages, c.data, c.context, c.tensor, c.expert};
}

const Stages& StageContents::of(const LayoutChoice& c) {
  const Key key = key_of(c);
  if (last_.second && last_.first == key) return *last_.second;
  auto known = known_.find(key);
  if (known == known_.end()) {
    Stages stages{spans_of(c), {}, {}};
    stages.contents = contents_of(stages.spans);
    stages.islands = islands_of(c, layout_of(c, stages.spans));
    known = known_.emplace(key, std::move(stages)).first;
  }
  last_ = {key, &known->second};
  return known->second;
}

Layout StageContents::layout_of(const LayoutChoice& c) { return layout_of(c, of(c).spans); }

Layout StageContents::layout_of(const LayoutChoice& c, const std::vector<Span>& spans) const {
  Layout layout = layout_from_choices(with(run_.parallel, c), c.data, c.attention_ranks, spans);
  order_by_islands(layout, run_.parallel);
  return layout;
}

std::vector<Span> StageContents::spans_of(const LayoutChoice& c) const {
  const RunConfig run = with(run_, c);
  return stages_of(run, speeds_of_stages(layout_of(c, {}), run.parallel));
}

std::vector<StageContent> StageContents::contents_of(const std::vector<Span>& spans) const {
  std::vector<StageContent> contents;
  for (const Span& span : spans) {
    StageContent& stage = contents.emplace_back();
    stage.layers.resize(std::size_t(types_.count())), stage.staying = stage.layers;
    for (Index layer = span.first; layer < span.last; ++layer) {
      ++stage.layers[std::size_t(types_.of_layer(layer))];
      if (run_.offload.on && !offloads(span, layer)) ++stage.staying[std::size_t(types_.of_layer(layer))];
    }
    stage.first = span.first == 0, stage.last = span.last == run_.model.layers();
  }
  return contents;
}

std::vector<std::vector<int>> StageContents::islands_of(const LayoutChoice& c, const Layout& layout) const {
  if (cluster_.parts.empty()) return std::vector(std::size_t(c.pipeline), std::vector{0});
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    std::vector<int>& islands = all.emplace_back();
    for (const auto& [island, there] : on_islands(layout, first_of(layout, rank), cluster_)) islands.push_back(island);
  }
  return all;
}

// The same rule as in Chunk: the last two layers of the model are not offloaded.
bool StageContents::offloads(const Span& stage, Index layer) const {
  const Index last = stage.last == run_.model.layers() ? stage.last - 2 : stage.last;
  return run_.offload.on && layer >= stage.first && layer < last && !layer_type(run_.model.pattern[std::size_t(layer)]).traits.read_later;
}

int first_of(const Layout& layout, int stage) {
  return layout.position_at([&](Axis axis) { return axis == Axis::pipeline ? stage : 0; });
}

Traffic message_of(const RunConfig& run, const LayoutChoice& c, Index layers) {
  const TextLengths lengths = run.lengths();
  const auto rows = [&](Index tokens) { return std::max<Index>(tokens > 0, c.micro_batch_size * tokens / c.context / (c.sequence ? c.tensor : 1)); };
  // Each block of tokens but the first of a sequence reads the neighbours of one chunk of the block before.
  const RetrievalConfig& retrieval = run.model.retrieval;
  const Index blocks = c.context == 1 || retrieval.chunk == 1 || !reads_neighbours(run.model) ? 0 : c.context_mode == ContextMode::ring ? 2 : 1;
  const Index before = c.micro_batch_size * blocks * retrieval.neighbours * retrieval.neighbour_length();
  Traffic message;
  for (const BundleShape& s :
       bundle_shapes(run.model, precision_of(run.train.precision), {rows(lengths.text), rows(lengths.source), c.tensor, before}, layers))
    message.calls += 1, message.bytes += s.bytes();
  return message;
}

}  // namespace gyr
