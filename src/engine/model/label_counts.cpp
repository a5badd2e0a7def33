// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/model/label_counts.hpp"

#include <algorithm>

namespace gyr {

std::vector<Index> label_counts(const std::vector<MicroBatch>& batches, const Objective& objective, bool further, Communicator& replicas) {
  std::vector<LossSum> losses = objective.losses();
  if (!further) losses.resize(1);
  std::vector<double> mine(losses.size(), 0);
  for (const MicroBatch& batch : batches)
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const std::vector<Token>* const labels = losses[i].labels.text.empty() ? &batch.labels : batch.values.find(losses[i].labels);
      if (labels) mine[i] += double(std::count_if(labels->begin(), labels->end(), [](Token label) { return label != ignored_label; }));
    }
  const std::vector<double> all = replicas.gather(mine);
  std::vector<Index> counts(losses.size(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) counts[i % counts.size()] += Index(all[i]);
  return counts;
}

std::vector<double> loss_scales(const std::vector<Index>& labels, const Objective& objective) {
  const std::vector<LossSum> losses = objective.losses();
  std::vector<double> scales;
  for (std::size_t i = 0; i < labels.size(); ++i) scales.push_back(objective.scale(losses[i], labels[i]));
  return scales;
}

}  // namespace gyr
