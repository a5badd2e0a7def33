// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/model/label_counts.hpp"

#include <algorithm>

#include "modules/objectives/future_tokens.hpp"

namespace gyr {

std::vector<Index> label_counts(const std::vector<MicroBatch>& batches, const Objective& objective, bool further, Communicator& replicas) {
  const std::size_t losses = 1 + (further ? std::size_t(objective.further_losses()) : 0);
  std::vector<double> mine(losses, 0);
  const auto add = [&](Index depth, const std::vector<Token>& labels) {
    mine[depth] += double(std::count_if(labels.begin(), labels.end(), [](Token label) { return label != ignored_label; }));
  };
  for (const MicroBatch& batch : batches) {
    add(0, batch.pairs.capacity() > 0 ? batch.pairs.label_of_pair : batch.labels);
    if (!further) continue;
    for (Index k = 1; k <= objective.depths(); ++k) add(k, future_tokens(k, batch.seq_length, batch.tokens, batch.labels, batch.positions).labels);
    if (objective.predicts_sentence_order()) add(1, batch.order);
  }
  const std::vector<double> all = replicas.gather(mine);
  std::vector<Index> counts(losses, 0);
  for (std::size_t i = 0; i < all.size(); ++i) counts[i % counts.size()] += Index(all[i]);
  return counts;
}

std::vector<double> loss_scales(const std::vector<Index>& labels, const Objective& objective) {
  std::vector<double> scales{1.0 / double(labels[0])};
  for (std::size_t k = 1; k < labels.size(); ++k) scales.push_back(objective.ahead_weight() / double(std::max<Index>(1, labels[k])));
  return scales;
}

}  // namespace gyr
