// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/expert_capacity.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace gyr {

Index expert_capacity(const MoeConfig& c, Index tokens) {
  if (c.capacity_factor == 0) return 0;
  return std::max<Index>(1, Index(std::ceil(c.capacity_factor * double(tokens * c.routing.top_k) / double(c.experts))));
}

Index max_rows_of_expert(const MoeConfig& c, const SequenceLayout& s) {
  const Index row_limit = expert_capacity(c, s.full_length());
  return s.batch * (row_limit > 0 ? std::min(row_limit, s.seq_length) : s.seq_length);
}

namespace {

// Weights that differ by less than this fraction count as equal. Rounding errors of fp32 are smaller.
constexpr double tie_width = 1e-4;

// Choices of one expert, by index in sequence order.
using ChoicesOfExpert = std::vector<std::size_t>;

void keep_first(const ChoicesOfExpert& all, Index capacity, std::vector<bool>& kept) {
  for (std::size_t i = 0; i < all.size() && Index(i) < capacity; ++i) kept[all[i]] = true;
}

// Keeps the weights above the C-th largest one, w, and then the first of those that are equal to w. No weight is near
// the limits w (1 +- tie_width) by more than chance, in contrast to those of a fixed grid of rounded weights.
void keep_largest(const ChoicesOfExpert& all, Index capacity, std::span<const double> weights, std::vector<bool>& kept) {
  if (Index(all.size()) <= capacity) return keep_first(all, capacity, kept);
  // A NaN counts as 0, since it has no order. The run ends at its check for finite values.
  const auto weight = [&](std::size_t choice) { return std::isnan(weights[choice]) ? 0 : weights[choice]; };
  std::vector<double> sorted(all.size());
  std::transform(all.begin(), all.end(), sorted.begin(), weight);
  std::nth_element(sorted.begin(), sorted.begin() + (capacity - 1), sorted.end(), std::greater<>());
  const double limit = sorted[std::size_t(capacity - 1)];
  const auto above = [&](std::size_t choice) { return weight(choice) > limit * (1 + tie_width); };
  Index ties = capacity - std::count_if(all.begin(), all.end(), above);
  for (const std::size_t choice : all) kept[choice] = above(choice) || (weight(choice) >= limit * (1 - tie_width) && ties-- > 0);
}

}  // namespace

std::vector<bool> kept_choices(DropPolicy policy, Index experts, Index capacity, std::span<const std::int32_t> chosen,
                               std::span<const double> weights) {
  std::vector<ChoicesOfExpert> of_expert(static_cast<std::size_t>(experts));
  for (std::size_t choice = 0; choice < chosen.size(); ++choice) of_expert[std::size_t(chosen[choice])].push_back(choice);
  std::vector<bool> kept(chosen.size());
  for (const ChoicesOfExpert& all : of_expert)
    if (policy == DropPolicy::probability) keep_largest(all, capacity, weights, kept);
    else keep_first(all, capacity, kept);
  return kept;
}

std::vector<std::int32_t> experts_within_capacity(const MoeConfig& c, const SequenceLayout& here, const SharedChoices& all) {
  const Index K = c.routing.top_k, T = here.full_length(), rows = here.rows(), ranks = here.shared() ? here.ranks : 1;
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
