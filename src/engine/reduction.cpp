// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/reduction.hpp"

namespace gyr {

template <class T>
GradientReduction<T>::GradientReduction(Stage<T>& stage, Grid& grid, Index bucket_bytes) : stage_(stage), grid_(grid), parts_(stage.parts()) {
  const std::vector<Span> ranges = stage.ranges();
  Index bytes = bucket_bytes;
  for (Index part = Index(ranges.size()) - 1; part >= 0; --part) {
    if (bytes >= bucket_bytes) parts_.buckets.push_back({part, part + 1}), bytes = 0;
    parts_.buckets.back().first = part;
    bytes += ranges[part].size() * Index(sizeof(Acc<T>));
  }
}

template <class T>
Event GradientReduction<T>::start(Device& dev, int bucket) {
  const std::vector<Span> ranges = stage_.ranges();
  const Span& parts = parts_.buckets[bucket];
  const Index first = ranges[parts.first].first;
  const Index last = parts.last == Index(ranges.size()) ? stage_.parameters().extent() : ranges[parts.last - 1].last;
  if (first == last) return {};
  return grid_.group(Axis::data).start_all_reduce(dev, rows(stage_.parameters().gradients(), first, last - first));
}

template <class T>
void GradientReduction<T>::finish(Device& dev, Arena& communication) {
  stage_.parameters().reduce_replicas(dev, communication, grid_.tensor());
  if (Parameter* shared = stage_.shared_embedding(); shared && shared->trained)
    grid_.embedding_group()->all_reduce(dev, shared->template vector_gradient<Acc<T>>());
}

template class GradientReduction<double>;
template class GradientReduction<float>;
template class GradientReduction<bf16>;

}  // namespace gyr
