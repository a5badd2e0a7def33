// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/reduction.hpp"

#include <algorithm>

namespace gyr {

void GradientReduction::reduce_in_type(DType dtype, Arena& memory) {
  if (dtype == parameters_.gradients().dtype || grid_.group(token_axes).size() == 1) return;
  Index sharing_buffers = 0, most = 0;
  copies_.resize(parameters_.buckets().size());
  for (int bucket = 0; bucket < int(copies_.size()); ++bucket) {
    const Index size = parameters_.gradient_size(bucket);
    if (shares_buffers(bucket)) ++sharing_buffers, most = std::max(most, size);
    else copies_[bucket] = take(memory, dtype, size);
  }
  for (Index i = 0; i < std::min<Index>(sharing_buffers, 2); ++i) buffers_of_copies_[i] = take(memory, dtype, most);
}

GradientReduction::Sections GradientReduction::travelling(int bucket, int buffer) const {
  if (copies_.empty()) return parameters_.gradients(bucket, buffer);
  return parameters_.gradients_in(shares_buffers(bucket) ? buffers_of_copies_[buffer] : copies_[bucket], bucket);
}

// Converts from or to the type of the reduction. Nothing to do if that is the gradients' own type, or if there is only
// one rank.
void GradientReduction::convert_parts(Device& dev, const Sections& from, AnyTensor Parameters::Distribution::*part, const Sections& to) const {
  const auto row = [](const AnyTensor& x) { return AnyTensor2(x.data, x.dtype, 1, x.size); };
  for (std::size_t i = 0; i < from.size() && !copies_.empty(); ++i)
    if (ranks_of(from[i]).size() > 1) convert(dev, row(from[i].*part), row(to[i].*part));
}

namespace {

// Joins sections that are reduced over the same ranks; they are contiguous in memory.
std::vector<Parameters::Distribution> joined(const std::vector<Parameters::Distribution>& sections) {
  std::vector<Parameters::Distribution> all;
  for (const Parameters::Distribution& section : sections)
    if (!all.empty() && all.back().of_experts == section.of_experts) all.back().all.size += section.all.size;
    else all.push_back(section);
  return all;
}

}  // namespace

void GradientReduction::begin(Device& dev) {
  fill(dev, parameters_.gradients(), 0);
  if (!shards_gradients()) return;
  for (std::size_t b = 0; b < parameters_.buckets().size(); ++b)
    if (parameters_.buckets()[b].kept_unsharded)
      for (const Parameters::Distribution& distributed : parameters_.gradients(int(b), -1)) fill(dev, distributed.all, 0);
}

void GradientReduction::clear(Device& dev, int bucket, int buffer) {
  for (InFlight& earlier : in_flight_)
    if (earlier.buffer == buffer) end(dev, earlier);
  std::erase_if(in_flight_, [&](const InFlight& earlier) { return earlier.buffer == buffer; });
  parameters_.bind_gradients(bucket, buffer);
  for (const Parameters::Distribution& distributed : parameters_.gradients(bucket, buffer)) fill(dev, distributed.all, 0);
}

void GradientReduction::start(Device& dev, int bucket, int buffer) {
  const Device::Purpose purpose(dev, "gradients of buckets: trained elements");
  InFlight sum{{}, bucket, buffer};
  const Sections sections = travelling(bucket, buffer);
  if (sections.empty()) return;
  convert_parts(dev, parameters_.gradients(bucket, buffer), &Parameters::Distribution::all, sections);
  if (parameters_.shard() == Shard::none) {
    for (const Parameters::Distribution& distributed : joined(sections))
      sum.events.push_back(ranks_of(distributed).start_all_reduce(dev, distributed.all));
  } else {
    for (const Parameters::Distribution& distributed : sections)
      sum.events.push_back(ranks_of(distributed).start_reduce_scatter(dev, distributed.all, distributed.mine));
  }
  in_flight_.push_back(std::move(sum));
  if (dev.dry_run()) end(dev, in_flight_.back()), in_flight_.pop_back();
}

void GradientReduction::end(Device& dev, InFlight& sum) {
  for (Event& event : sum.events) event.device_wait(dev);
  convert_parts(dev, travelling(sum.bucket, sum.buffer), &Parameters::Distribution::mine, parameters_.gradients(sum.bucket, sum.buffer));
  if (shards_gradients()) parameters_.keep_gradients(dev, sum.bucket, sum.buffer);
}

void GradientReduction::poll() {
  for (InFlight& sum : in_flight_)
    for (Event& event : sum.events) event.done();
}

void GradientReduction::finish(Device& dev) {
  for (InFlight& sum : in_flight_) end(dev, sum);
  in_flight_.clear();
  parameters_.reduce_copies(dev, dev.scratch, Axis::tensor, Parameters::Holders::all, grid_.tensor(), grid_.layout().sequence);
  if (grid_.team()) parameters_.reduce_copies(dev, dev.scratch, Axis::tensor, Parameters::Holders::team, *grid_.team(), false);
  const Device::Purpose purpose(dev, "gradient of the tied embedding: vocabulary x hidden");
  if (Parameter* shared = stage_.shared_embedding(); shared && shared->trained)
    if (const Piece kept = shared->kept_gradient(); kept.values.size > 0) grid_.embedding_group()->all_reduce(dev, kept.values);
}

}  // namespace gyr
