// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/operator_chain.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/base/error.hpp"
#include "modules/weights/placement.hpp"

namespace gyr {

namespace {

constexpr std::array<std::string_view, tensor_states> state_names{"whole", "shared", "rows", "units", "partial"};
constexpr std::array<std::string_view, 3> split_names{"", "by outputs", "by inputs"};

using S = TensorState;

constexpr std::array all_moves{
    LayoutMove{S::full, S::shared, Act::keep, Act::sum},        LayoutMove{S::full, S::rows, Act::take, Act::gather},
    LayoutMove{S::full, S::units, Act::take, Act::gather},      LayoutMove{S::full, S::partial, Act::once, Act::keep},
    LayoutMove{S::shared, S::full, Act::keep, Act::once},       LayoutMove{S::shared, S::rows, Act::take, Act::pad},
    LayoutMove{S::shared, S::units, Act::take, Act::pad},       LayoutMove{S::rows, S::full, Act::gather, Act::take},
    LayoutMove{S::rows, S::shared, Act::gather, Act::scatter},  LayoutMove{S::rows, S::partial, Act::pad, Act::take},
    LayoutMove{S::units, S::full, Act::gather, Act::take},      LayoutMove{S::units, S::shared, Act::gather, Act::scatter},
    LayoutMove{S::units, S::partial, Act::pad, Act::take},      LayoutMove{S::partial, S::full, Act::sum, Act::keep},
    LayoutMove{S::partial, S::rows, Act::scatter, Act::gather}, LayoutMove{S::partial, S::units, Act::scatter, Act::gather},
};

bool divides_units(const Run& run, int ranks) { return run.units == 0 || run.units % ranks == 0 || ranks % run.units == 0; }

// Number of ranks that hold the same unit, or parts of it.
int ranks_of_unit(const Run& run, int ranks) { return int(std::max<Index>(1, ranks / run.units)); }

Index elements_of(const OperatorWeight& w, WeightSplit split, int ranks) {
  Coordinates at;
  at[Axis::tensor].ranks = ranks;
  return w.alike * elements(place({w.name, w.shape, w.shardings(split), zeros()}, at).shape);
}

// Elements of a row of a tensor, summed over all ranks.
Index row_elements(const Channels& c, TensorState state, int ranks) {
  if (state == S::rows) return c.width;
  return ranks * (state == S::units ? channels_per_rank(c, ranks) : c.width);
}

void add(std::vector<RowTransfer>& transfers, const RowTransfer& t) {
  if (t.ranks > 1) transfers.push_back(t);
}

void add(std::vector<RowTransfer>& transfers, Act act, Index width, int ranks) {
  if (act == Act::sum) add(transfers, {Operation::all_reduce, width, ranks});
  if (act == Act::gather) add(transfers, {Operation::all_gather, width, ranks});
  if (act == Act::scatter) add(transfers, {Operation::reduce_scatter, width, ranks});
}

bool communicates(Act act) { return act >= Act::sum; }

// Cheapest layouts, indexed by the first and the last state of a chain.
using Ways = std::array<std::array<std::optional<ChainLayout>, tensor_states>, tensor_states>;

void keep_cheaper(std::optional<ChainLayout>& best, const ChainLayout& before, const LayoutStep& step, const LayoutCost& cost) {
  if (best && best->cost <= before.cost + cost) return;
  ChainLayout longer{before.cost + cost, before.steps};
  longer.steps.push_back(step);
  best = std::move(longer);
}

// Applies moves between states until no move reduces a cost (Bellman-Ford).
void apply_moves(Ways& ways, const Channels& channels, const OperatorChain& chain, const LayoutRules& rules) {
  std::vector<LayoutStep> steps;
  for (const LayoutMove& move : moves())
    if (auto step = step_of(move, channels, rules)) steps.push_back(std::move(*step));
  for (auto& from : ways)
    for (int round = 1; round < tensor_states; ++round)
      for (const LayoutStep& step : steps)
        if (const auto before = from[int(step.in)]) keep_cheaper(from[int(step.out)], *before, step, cost_of(step, chain, rules));
}

Ways ways_of(const OperatorChain&, const Channels& begin, const LayoutRules&);

// All branches of a sum have the same first state and the same last state, which is that of the sum.
std::vector<LayoutStep> steps_of_sum(const Operator& sum, int number, const LayoutRules& rules) {
  std::vector<Ways> branches;
  for (const OperatorChain& branch : sum.branches) branches.push_back(ways_of(branch, sum.in, rules));
  std::vector<LayoutStep> steps;
  for (int in = 0; in < tensor_states; ++in)
    for (int out = 0; out < tensor_states; ++out) {
      LayoutStep step{.op = number, .in = TensorState(in), .out = TensorState(out)};
      for (const Ways& ways : branches)
        if (ways[in][out]) step.branches.push_back(*ways[in][out]);
      if (step.branches.size() == branches.size()) steps.push_back(std::move(step));
    }
  return steps;
}

std::vector<LayoutStep> steps_of(const Operator& op, int number, const LayoutRules& rules) {
  if (!op.branches.empty()) return steps_of_sum(op, number, rules);
  std::vector<LayoutStep> steps;
  for (const OperatorPassage& passage : op.passages)
    if (!rules.allowed || rules.allowed(op, passage))
      if (auto step = step_of(passage, op, number, rules)) steps.push_back(std::move(*step));
  return steps;
}

Ways ways_of(const OperatorChain& chain, const Channels& begin, const LayoutRules& rules) {
  Ways ways;
  for (int state = 0; state < tensor_states; ++state)
    if (TensorState(state) != S::units || can_divide(begin, rules.ranks)) ways[state][state] = ChainLayout{};
  apply_moves(ways, begin, chain, rules);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    Ways after;
    for (const LayoutStep& step : steps_of(chain[i], int(i), rules)) {
      LayoutCost cost = cost_of(step, chain, rules);
      for (const ChainLayout& branch : step.branches) cost = cost + branch.cost;
      for (int from = 0; from < tensor_states; ++from)
        if (const auto& before = ways[from][int(step.in)]) keep_cheaper(after[from][int(step.out)], *before, step, cost);
    }
    ways = std::move(after);
    apply_moves(ways, chain[i].out, chain, rules);
  }
  return ways;
}

}  // namespace

std::string_view name_of(TensorState state) { return state_names[std::size_t(state)]; }
std::string_view name_of(WeightSplit split) { return split_names[std::size_t(split)]; }
std::span<const LayoutMove> moves() { return all_moves; }

Channels by_units(std::vector<Run> units) {
  Channels c{0, std::move(units)};
  for (const Run& run : c.units) c.width += run.extent;
  return c;
}

bool can_divide(const Channels& c, int ranks) {
  return !c.units.empty() && std::all_of(c.units.begin(), c.units.end(), [&](const Run& run) { return divides_units(run, ranks); });
}

Index channels_per_rank(const Channels& c, int ranks) {
  Coordinates at;
  at[Axis::tensor].ranks = ranks;
  return place({"channels", {c.width}, by_rows(c.units), zeros()}, at).shape[0];
}

bool in_equal_parts(const Channels& c, int ranks) { return can_divide(c, ranks) && channels_per_rank(c, ranks) * ranks == c.width; }

Shardings OperatorWeight::shardings(WeightSplit split) const {
  if (split == WeightSplit::outputs && !outputs.empty()) return {{Axis::tensor, output_dim, outputs}};
  if (split == WeightSplit::inputs && !inputs.empty()) return {{Axis::tensor, input_dim, inputs}};
  return replicated();
}

Operator gemm_operator(std::string name, const Channels& in, const Channels& out, const std::vector<std::string>& weights, bool bias) {
  Operator op{std::move(name), in, out, {{S::full, S::full}, {S::shared, S::shared}, {S::rows, S::rows}}};
  if (!out.units.empty()) op.passages.push_back({S::shared, S::units, WeightSplit::outputs});
  if (!in.units.empty()) op.passages.push_back({S::units, S::partial, WeightSplit::inputs});
  ensure(weights.size() == 1 || weights.size() == out.units.size(), "{}: {} weights for {} runs", op.name, weights.size(), out.units.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool all = weights.size() == 1;
    const std::vector<Run> outputs = all ? out.units : std::vector{out.units[i]};
    const Index rows = all ? out.width : out.units[i].extent;
    op.weights.push_back({weights[i] + ".weight", {rows, in.width}, outputs, in.units});
    if (bias) op.weights.push_back({weights[i] + ".bias", {rows}, outputs});
  }
  return op;
}

Operator over_rows(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights) {
  return {std::move(name), in, out, {{S::full, S::full}, {S::shared, S::shared}, {S::rows, S::rows}}, std::move(weights)};
}

Operator over_units(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights, std::vector<InnerSum> sums) {
  Operator op = over_rows(std::move(name), in, out, std::move(weights));
  op.passages.push_back({S::units, S::units, WeightSplit::outputs, std::move(sums)});
  return op;
}

Operator over_tokens(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights) {
  return {std::move(name), in, out, {{S::full, S::full}, {S::shared, S::shared}, {S::units, S::units, WeightSplit::outputs}}, std::move(weights)};
}

Operator sum_of(std::string name, std::vector<OperatorChain> branches, const Channels& all) {
  Operator op{std::move(name), all, all, {}};
  op.branches = std::move(branches);
  return op;
}

LayoutCost operator+(const LayoutCost& a, const LayoutCost& b) {
  return {a.held + b.held, a.sent + b.sent, a.calls + b.calls, a.summed + b.summed, a.kept + b.kept, a.moves + b.moves};
}

std::optional<LayoutStep> step_of(const OperatorPassage& p, const Operator& op, int number, const LayoutRules& rules) {
  if ((p.in == S::units && !can_divide(op.in, rules.ranks)) || (p.out == S::units && !can_divide(op.out, rules.ranks))) return {};
  LayoutStep step{.op = number, .in = p.in, .out = p.out, .split = p.split};
  for (const InnerSum& sum : p.sums) {
    const int among = ranks_of_unit(sum.units, rules.ranks);
    const RowTransfer t{Operation::all_reduce, sum.elements * sum.units.units * among / rules.ranks, among, true};
    for (int i = 0; i < sum.forward; ++i) add(step.forward, t);
    for (int i = 0; i < sum.backward; ++i) add(step.backward, t);
  }
  return step;
}

std::optional<LayoutStep> step_of(const LayoutMove& move, const Channels& channels, const LayoutRules& rules) {
  const bool of_units = move.from == S::units || move.to == S::units, parts = communicates(move.forward) || communicates(move.backward);
  if (of_units && !(parts ? in_equal_parts(channels, rules.ranks) : can_divide(channels, rules.ranks))) return {};
  LayoutStep step{.in = move.from, .out = move.to, .move_forward = move.forward, .move_backward = move.backward};
  add(step.forward, move.forward, channels.width, rules.ranks);
  add(step.backward, move.backward, channels.width, rules.ranks);
  if (move.from == S::rows && rules.gathers_again) add(step.backward, move.forward, channels.width, rules.ranks);
  return step;
}

LayoutCost cost_of(const LayoutStep& step, const OperatorChain& chain, const LayoutRules& rules) {
  LayoutCost cost;
  for (const auto* transfers : {&step.forward, &step.backward})
    for (const RowTransfer& t : *transfers) cost.sent += t.sent() * (t.wide ? rules.wide : rules.narrow) * (rules.ranks / t.ranks), ++cost.calls;
  if (step.op < 0) {
    cost.moves = 1;
    return cost;
  }
  const Operator& op = chain[step.op];
  cost.kept = op.branches.empty() ? row_elements(op.out, step.out, rules.ranks) : 0;
  for (const OperatorWeight& w : op.weights) {
    const Index each = elements_of(w, step.split, rules.ranks);
    cost.held += rules.ranks * each;
    const bool partly = step.in == S::shared || step.in == S::rows || step.in == S::partial;
    if (rules.ranks > 1 && partly && step.split == WeightSplit::nowhere) cost.summed += rules.ranks * each;
  }
  return cost;
}

std::optional<ChainLayout> lay_out(const OperatorChain& chain, const LayoutRules& rules, std::span<const TensorState> begin,
                                   std::span<const TensorState> end) {
  ensure(!chain.empty(), "the operator chain is empty");
  const Ways ways = ways_of(chain, chain.front().in, rules);
  std::optional<ChainLayout> best;
  for (const TensorState from : begin)
    for (const TensorState to : end)
      if (const auto& way = ways[int(from)][int(to)]; way && (!best || way->cost < best->cost)) best = way;
  return best;
}

void for_each_step(const OperatorChain& chain, const ChainLayout& layout, const std::function<void(const OperatorChain&, const LayoutStep&)>& visit) {
  for (const LayoutStep& step : layout.steps) {
    for (std::size_t i = 0; i < step.branches.size(); ++i) for_each_step(chain[step.op].branches[i], step.branches[i], visit);
    visit(chain, step);
  }
}

}  // namespace gyr
