// SPDX-License-Identifier: BSD-3-Clause
// Where a layer's weights are cut over the tensor axis, found from what its operators allow. Between two operators a tensor lies on the ranks in one
// of five states; an operator says from which state to which it leads and how its weights are cut then, moves from state to state cost traffic, and
// dynamic programming over the chain finds the states of the least cost. What Redco's rules say by names comes out of it: the first matrix is cut by
// its outputs, the next by its inputs, and their sum is taken once each way.
#pragma once

#include <compare>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device/traffic.hpp"
#include "modules/weights/weight.hpp"

namespace gyr {

// Of a tensor, and of its gradient.
//   whole    every rank has all of both
//   shared   every rank has all of the tensor and a part of the gradient, which is the sum of these: what is read by operators that are cut
//   rows     every rank has its share of the rows of both (sequence parallelism)
//   units    every rank has some units of both, fewer than there are ranks being held by neighbours, whose gradients add up
//   partial  the tensor is the sum of what the ranks have, and every rank has all of the gradient
enum class TensorState { whole, shared, rows, units, partial };
inline constexpr int tensor_states = 5;
std::string_view name_of(TensorState);

// The channels of a row, in runs of units. Without runs they are never cut.
struct Channels {
  Index width;
  std::vector<Run> units;
};
inline Channels undivided(Index width) { return {width, {}}; }
Channels by_units(std::vector<Run> units);
// Whether so many ranks can have whole units of each run, and what one of them then has; and whether these are parts of equal size that no two hold.
bool can_share(const Channels&, int ranks);
Index share_of(const Channels&, int ranks);
bool in_equal_parts(const Channels&, int ranks);

// What is handed to a communicator for each row.
struct RowTransfer {
  Operation operation;
  Index numbers;  // of the whole tensor
  int ranks;      // that take part
  bool wide = false;

  // Numbers that one of them hands over; and that all of them together send where they form a ring.
  double handed_over() const { return operation == Operation::all_gather ? double(numbers) / ranks : double(numbers); }
  Index sent() const { return (operation == Operation::all_reduce ? 2 : 1) * numbers * (ranks - 1); }
};

// A sum that an operator takes over the ranks that have parts of one unit, of so many numbers for each unit.
struct InnerSum {
  Run units;
  Index numbers;
  int forward, backward;  // how often
};

enum class WeightSplit { nowhere, outputs, inputs };
std::string_view name_of(WeightSplit);

// From which state to which an operator leads, and where its weights are cut then.
struct OperatorPassage {
  TensorState in, out;
  WeightSplit cut = WeightSplit::nowhere;
  std::vector<InnerSum> sums = {};
};

// A weight as far as it can be cut: along the outputs of its operator, along the inputs. Without runs it is not.
struct OperatorWeight {
  std::string name;  // a pattern of names where there are several alike
  Shape shape;
  std::vector<Run> outputs = {}, inputs = {};
  int output_dim = 0, input_dim = 1;
  Index alike = 1;

  Shardings shardings(WeightSplit) const;
};

struct Operator;
using OperatorChain = std::vector<Operator>;

struct Operator {
  std::string name;
  Channels in, out;
  std::vector<OperatorPassage> passages;
  std::vector<OperatorWeight> weights = {};
  std::vector<OperatorChain> branches = {};  // of a sum, which read the same; one without operators passes on what they read
};

// y = x w' + b: whole, cut by its outputs, or by its inputs, as far as both have units. Weights NAME.weight and, with a bias, NAME.bias, one for each
// run of the outputs, or one for all of them.
Operator product(std::string name, const Channels& in, const Channels& out, const std::vector<std::string>& weights, bool bias = false);
// Row by row, over all channels: a norm.
Operator over_rows(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights = {});
// Number by number, or within units. `sums`: taken where these are cut.
Operator over_units(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights = {},
                    std::vector<InnerSum> sums = {});
// Over the tokens, unit by unit: attention, convolution, scan.
Operator over_tokens(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights = {});
// The sum of what branches make of one tensor.
Operator sum_of(std::string name, std::vector<OperatorChain> branches, const Channels& all);

// What ranks do with a tensor on the way from one state to another, and with its gradient on the way back.
//   keep  nothing    once  of what all have, one goes on, the others have zeros    take  its own part of what it has    pad  zeros around its part
//   sum, gather, scatter  all-reduce, all-gather, reduce-scatter
enum class Act { keep, once, take, pad, sum, gather, scatter };
struct LayoutMove {
  TensorState from, to;
  Act forward, backward;
};
std::span<const LayoutMove> moves();

// Of all ranks together; compared from the left. Whoever takes more ranks for a layer wants each to hold and compute less: that comes first.
struct LayoutCost {
  Index held = 0;    // numbers of weights
  Index sent = 0;    // bytes for a row, forward and backward
  Index calls = 0;   // of collectives, the same
  Index summed = 0;  // numbers of weights all of which every rank has, with a part of the gradient: summed once a step
  Index kept = 0;    // numbers of a row that operators make
  Index moves = 0;

  auto operator<=>(const LayoutCost&) const = default;
  friend LayoutCost operator+(const LayoutCost&, const LayoutCost&);
};

struct ChainLayout;
// A move, or a passage of an operator.
struct LayoutStep {
  int op = -1;  // its number in the chain; -1: a move
  TensorState in, out;
  WeightSplit cut = WeightSplit::nowhere;
  Act move_forward = Act::keep, move_backward = Act::keep;
  std::vector<RowTransfer> forward = {}, backward = {};
  std::vector<ChainLayout> branches = {};
};
struct ChainLayout {
  LayoutCost cost;
  std::vector<LayoutStep> steps;
};

struct LayoutRules {
  int ranks = 1;
  Index narrow = 2, wide = 4;  // bytes of a number, and of one in the accumulator's precision
  // Gathered rows are not kept: the gradients of weights gather them again. Not where forward and backward are one.
  bool gathers_again = true;
  // Passages that may be taken; all where empty.
  std::function<bool(const Operator&, const OperatorPassage&)> allowed = {};
};

// What a step costs besides its branches.
LayoutCost cost_of(const LayoutStep&, const OperatorChain&, const LayoutRules&);
// The step of a passage or a move; none where units do not divide.
std::optional<LayoutStep> step_of(const OperatorPassage&, const Operator&, int number, const LayoutRules&);
std::optional<LayoutStep> step_of(const LayoutMove&, const Channels&, const LayoutRules&);

// The cheapest layout from one of these states to one of those; of equal ones that whose states come first. None where nothing leads there.
std::optional<ChainLayout> lay_out(const OperatorChain&, const LayoutRules&, std::span<const TensorState> begin, std::span<const TensorState> end);

// visit(chain, step) for every step, branches' before the sum's own.
void for_each_step(const OperatorChain&, const ChainLayout&, const std::function<void(const OperatorChain&, const LayoutStep&)>& visit);

}  // namespace gyr
