// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/reduction.hpp"

#include <algorithm>

namespace gyr {

void GradientReduction::begin(Device& dev) {
  fill(dev, parameters_.gradients(), 0);
  if (!cut()) return;
  for (std::size_t b = 0; b < parameters_.buckets().size(); ++b)
    if (parameters_.buckets()[b].kept_whole)
      for (const Parameters::Dealt& dealt : parameters_.gradients(int(b), -1)) fill(dev, dealt.all, 0);
}

void GradientReduction::clear(Device& dev, int bucket, int buffer) {
  for (UnderWay& earlier : under_way_)
    if (earlier.buffer == buffer) end(dev, earlier);
  std::erase_if(under_way_, [&](const UnderWay& earlier) { return earlier.buffer == buffer; });
  parameters_.bind_gradients(bucket, buffer);
  for (const Parameters::Dealt& dealt : parameters_.gradients(bucket, buffer)) fill(dev, dealt.all, 0);
}

void GradientReduction::start(Device& dev, int bucket, int buffer) {
  UnderWay sum{{}, bucket, buffer};
  Communicator& ranks = grid_.group(token_axes);
  const std::vector<Parameters::Dealt> sections = parameters_.gradients(bucket, buffer);
  if (sections.empty()) return;
  if (parameters_.shard() == Shard::none) {  // sections lie one behind the other
    Index size = 0;
    for (const Parameters::Dealt& dealt : sections) size += dealt.all.size;
    sum.events.push_back(ranks.start_all_reduce(dev, AnyTensor(sections.front().all.data, sections.front().all.dtype, size)));
  } else {
    for (const Parameters::Dealt& dealt : sections) sum.events.push_back(ranks.start_reduce_scatter(dev, dealt.all, dealt.mine));
  }
  under_way_.push_back(std::move(sum));
  if (dev.dry_run()) end(dev, under_way_.back()), under_way_.pop_back();
}

void GradientReduction::end(Device& dev, UnderWay& sum) {
  for (Event& event : sum.events) event.device_wait(dev);
  if (cut()) parameters_.keep_gradients(dev, sum.bucket, sum.buffer);
}

void GradientReduction::poll() {
  for (UnderWay& sum : under_way_)
    for (Event& event : sum.events) event.done();
}

void GradientReduction::finish(Device& dev) {
  for (UnderWay& sum : under_way_) end(dev, sum);
  under_way_.clear();
  parameters_.reduce_copies(dev, dev.scratch, Axis::tensor, grid_.tensor(), grid_.layout().sequence);
  if (Parameter* shared = stage_.shared_embedding(); shared && shared->trained)
    if (const Piece kept = shared->kept_gradient(); kept.numbers.size > 0) grid_.embedding_group()->all_reduce(dev, kept.numbers);
}

}  // namespace gyr
