// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/layout.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

namespace gyr {

int Layout::size(Axes along) const {
  int size = 1;
  for (const LayoutAxis& a : axes)
    if (along.has(a.axis)) size *= a.size;
  return size;
}

int Layout::coordinate(int position, Axes along) const {
  int coordinate = 0, inside = 1;
  for (auto a = axes.rbegin(); a != axes.rend(); position /= a->size, ++a)
    if (along.has(a->axis)) coordinate += position % a->size * inside, inside *= a->size;
  return coordinate;
}

Coordinates Layout::coordinates(int position, Axes along) const {
  Coordinates at;
  at.experts = experts(position);
  for (const LayoutAxis& a : axes)
    if (along.has(a.axis)) at[a.axis] = {a.size, coordinate(position, a.axis)};
  return at;
}

std::vector<int> Layout::holders(HeldBy by, int position) const {
  const auto group = [&](int at) {
    const int of_stage = by == HeldBy::team           ? int(mixers().team_of(coordinate(at, Axis::tensor)).first)
                         : by == HeldBy::expert_ranks ? experts(at).rank
                                                      : 0;
    return std::pair(coordinate(at, Axis::pipeline), of_stage);
  };
  std::vector<int> all;
  for (int at = 0; at < ranks(); ++at)
    if (group(at) == group(position)) all.push_back(at);
  return all;
}

std::string Layout::text() const {
  std::string text;
  for (const LayoutAxis& a : axes) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", a.size, name_of(a.axis));
  if (size(Axis::context) > 1)
    text += std::array{" (ring attention)", " (all-to-all of heads)", " (load-balanced attention)"}[std::size_t(context_mode)];
  if (attention_ranks > 0) text += fmt::format(" ({} attention, {} SSM)", attention_ranks, size(Axis::tensor) - attention_ranks);
  if (expert > 1) text += fmt::format(" (expert parallel over {})", expert);
  if (sequence) text += " with sequence parallelism";
  if (shard != Shard::none) text += fmt::format("{} sharded {}", sequence ? "," : " with", name_of(shard));
  return text;
}

int Layout::position_of(int rank) const {
  if (permutation.empty()) return rank;
  return int(std::find(permutation.begin(), permutation.end(), rank) - permutation.begin());
}

SequenceLayout Layout::sequences(int position, Index batch, Index seq_length) const {
  const Index ranks = size(Axis::context);
  if (ranks == 1) return {batch, seq_length};
  SequenceLayout s{batch, shared_length(order, seq_length, ranks)};
  s.order = order, s.ranks = ranks, s.rank = coordinate(position, Axis::context), s.full_tokens = seq_length;
  s.mode = context_mode;
  return s;
}

Layout grid_layout(int data, int pipeline, int tensor, std::vector<Span> stages, std::vector<int> permutation, const std::vector<Axis>& order,
                   int context) {
  Layout layout{{{Axis::data, data}, {Axis::pipeline, pipeline}}, std::move(permutation), std::move(stages)};
  if (context > 1) layout.axes.push_back({Axis::context, context});
  layout.axes.push_back({Axis::tensor, tensor});
  const auto place = [&](const LayoutAxis& a) { return std::find(order.begin(), order.end(), a.axis); };
  std::stable_sort(layout.axes.begin(), layout.axes.end(), [&](const LayoutAxis& a, const LayoutAxis& b) { return place(a) < place(b); });
  return layout;
}

// best[n]: minimum cost of the slowest stage if the first n layers are split into the stages up to s. The last stage
// costs less the later it begins. Once it costs more than the best split found, no earlier begin can be better.
std::vector<Span> split_stages(const std::vector<double>& costs, double before, double after, int stages, const std::vector<double>& speeds) {
  const int layers = int(costs.size());
  require(stages <= layers, Exit::config,
          "{} layers cannot be split into {} pipeline stages; set parallel.pipeline (x parallel.virtual_stages) to {} or less", layers, stages,
          layers);
  std::vector<double> sum(layers + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), sum.begin() + 1);
  const auto cost = [&](int stage, int first, int last) {
    const double work = sum[last] - sum[first] + (stage == 0 ? before : 0) + (stage == stages - 1 ? after : 0);
    return speeds.empty() ? work : work / speeds[std::size_t(stage)];
  };
  std::vector<double> best(layers + 1, std::numeric_limits<double>::infinity());
  std::vector from(stages, std::vector<int>(layers + 1, 0));
  for (int n = 1; n <= layers; ++n) best[n] = cost(0, 0, n);
  for (int s = 1; s < stages; ++s) {
    const std::vector<double> before_s = std::exchange(best, std::vector<double>(layers + 1, std::numeric_limits<double>::infinity()));
    for (int n = s + 1; n <= layers; ++n)
      for (int first = n - 1; first >= s; --first) {
        const double last = cost(s, first, n);
        if (last > best[n]) break;
        // <= selects the earliest begin among equal costs
        if (const double slowest = std::max(before_s[first], last); slowest <= best[n]) best[n] = slowest, from[s][n] = first;
      }
  }
  std::vector<Span> spans(stages);
  for (int s = stages - 1, last = layers; s >= 0; --s) {
    const int first = s == 0 ? 0 : from[s][last];
    spans[s] = {first, last};
    last = first;
  }
  return spans;
}

void check_permutation(const std::vector<int>& permutation, int ranks) {
  if (permutation.empty()) return;
  std::vector<int> sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  bool arrangement = int(sorted.size()) == ranks;
  for (int i = 0; arrangement && i < ranks; ++i) arrangement = sorted[i] == i;
  require(arrangement, Exit::config, "parallel.permutation must name each of the ranks 0 to {} once", ranks - 1);
}

}  // namespace gyr
