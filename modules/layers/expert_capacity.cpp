// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/expert_capacity.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gyr {

Index expert_capacity(const MoeConfig& c, Index tokens) {
  if (c.capacity_factor == 0) return 0;
  return std::max<Index>(1, Index(std::ceil(c.capacity_factor * double(tokens * c.routing.top_k) / double(c.experts))));
}

Index max_rows_of_expert(const MoeConfig& c, const SequenceLayout& s) {
  const Index room = expert_capacity(c, s.whole_length());
  return s.batch * (room > 0 ? std::min(room, s.seq_length) : s.seq_length);
}

std::vector<bool> kept_choices(DropPolicy policy, Index experts, Index capacity, std::span<const std::int32_t> chosen,
                               std::span<const double> weights) {
  std::vector<std::size_t> order(chosen.size());
  std::iota(order.begin(), order.end(), 0);
  if (policy == DropPolicy::probability)
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  std::vector<Index> taken(std::size_t(experts), 0);
  std::vector<bool> kept(chosen.size());
  for (const std::size_t choice : order) kept[choice] = taken[std::size_t(chosen[choice])]++ < capacity;
  return kept;
}

std::vector<std::int32_t> experts_within_capacity(const MoeConfig& c, const SequenceLayout& here, const SharedChoices& all) {
  const Index K = c.routing.top_k, T = here.whole_length(), rows = here.rows(), ranks = here.shared() ? here.ranks : 1;
  const bool weighed = !all.weights.empty();
  std::vector<std::int32_t> to(std::size_t(rows * K), std::int32_t(c.experts));
  for (Index b = 0; b < here.batch; ++b) {
    // Calls visitor(rank, index of the token's first choice among those of that rank, index in sequence order) for each
    // token of sequence b.
    const auto visit = [&](const auto& visitor) {
      SequenceLayout of_rank = here;
      for (Index r = 0; r < ranks; ++r) {
        if (here.shared()) of_rank.rank = r;
        for (Index t = 0; t < here.seq_length; ++t)
          if (const Index place = of_rank.place(t); place < T) visitor(r, (b * here.seq_length + t) * K, place * K);
      }
    };
    std::vector<std::int32_t> chosen(std::size_t(T * K));
    std::vector<double> weights(weighed ? std::size_t(T * K) : 0);
    visit([&](Index rank, Index from, Index place) {
      std::copy_n(all.chosen.begin() + rank * rows * K + from, K, chosen.begin() + place);
      if (weighed) std::copy_n(all.weights.begin() + rank * rows * K + from, K, weights.begin() + place);
    });
    const std::vector<bool> kept = kept_choices(c.drop_policy, c.experts, expert_capacity(c, T), chosen, weights);
    visit([&](Index rank, Index row, Index place) {
      if (here.shared() && rank != here.rank) return;
      for (Index k = 0; k < K; ++k)
        if (kept[std::size_t(place + k)]) to[std::size_t(row + k)] = chosen[std::size_t(place + k)];
    });
  }
  return to;
}

}  // namespace gyr
