// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/reduction.hpp"

namespace gyr {

GradientReduction::GradientReduction(Stage& stage, Grid& grid, Index bucket_bytes) : stage_(stage), grid_(grid), parts_(stage.parts()) {
  const std::vector<Span> ranges = stage.ranges();
  Index bytes = bucket_bytes;
  for (Index part = Index(ranges.size()) - 1; part >= 0; --part) {
    if (bytes >= bucket_bytes) parts_.buckets.push_back({part, part + 1}), bytes = 0;
    parts_.buckets.back().first = part;
    bytes += ranges[part].size() * size_of(accumulator_of(stage.parameters().dtype()));
  }
  for (const Span& bucket : parts_.buckets) ranges_.push_back({ranges[bucket.first].first, ranges[bucket.last - 1].last});
}

Event GradientReduction::start(Device& dev, int bucket) {
  Span range = ranges_[bucket];
  if (bucket == 0) range.last = stage_.parameters().extent();  // the last weights, with the padding behind them
  if (range.size() == 0) return {};
  return grid_.group(Axis::data).start_all_reduce(dev, rows(stage_.parameters().gradients(), range.first, range.size()));
}

void GradientReduction::finish(Device& dev) {
  stage_.parameters().reduce_copies(dev, dev.scratch, Axis::tensor, grid_.tensor(), grid_.layout().sequence);
  if (Parameter* shared = stage_.shared_embedding(); shared && shared->trained) grid_.embedding_group()->all_reduce(dev, shared->gradient());
}

}  // namespace gyr
