// SPDX-License-Identifier: BSD-3-Clause
// Tensor-parallel sharding of a layer's weights, derived from its operators. Between two operators, a tensor is in one
// of five states on the tensor-parallel ranks. Each operator lists its passages: input state, output state, and how its
// weights are sharded. A move from one state to another costs communication. Dynamic programming over the chain of
// operators finds the cheapest states. The result agrees with Redco's rules by weight name: the first matrix is sharded
// by its outputs (column parallel), the next one by its inputs (row parallel), with one reduction in the forward and
// one in the backward.
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

// State of a tensor and of its gradient on the tensor-parallel ranks:
//   full     every rank has all of the tensor and all of the gradient
//   shared   every rank has all of the tensor and a partial sum of the gradient: input of sharded operators
//   rows     every rank has its shard of the rows of both (sequence parallel)
//   units    every rank has some units (heads, channels) of both; if there are fewer units than ranks, neighbouring ranks hold the same unit and
//            their gradients are summed
//   partial  every rank has a partial sum of the tensor and all of the gradient
enum class TensorState { full, shared, rows, units, partial };
inline constexpr int tensor_states = 5;
std::string_view name_of(TensorState);

// Channels of a row, as runs of equal units. Channels without runs are never sharded.
struct Channels {
  Index width;
  std::vector<Run> units;
};
inline Channels undivided(Index width) { return {width, {}}; }
Channels by_units(std::vector<Run> units);
// can_divide: true if the units of each run can be distributed evenly over the ranks. channels_per_rank: channels per rank.
// in_equal_parts: true if the shards are equally large and disjoint.
bool can_divide(const Channels&, int ranks);
Index channels_per_rank(const Channels&, int ranks);
bool in_equal_parts(const Channels&, int ranks);

// Collective operation on one row of a tensor.
struct RowTransfer {
  Operation operation;
  Index elements;     // number of elements of a full row of the tensor
  int ranks;          // number of ranks that take part in the collective
  bool wide = false;  // true: elements have the accumulator's precision

  // handed_over: elements that one rank passes to the collective. sent: elements that all of its ranks send in total
  // with ring algorithms.
  double handed_over() const { return operation == Operation::all_gather ? double(elements) / ranks : double(elements); }
  Index sent() const { return (operation == Operation::all_reduce ? 2 : 1) * elements * (ranks - 1); }
};

// All-reduce within an operator, over the ranks among which a unit (head or group) is split.
struct InnerSum {
  Run units;
  Index elements;         // number of all-reduced elements per unit (head or group)
  int forward, backward;  // number of all-reduces in forward and in backward
};

enum class WeightSplit { nowhere, outputs, inputs };
std::string_view name_of(WeightSplit);

// Input state and output state of an operator, and how its weights are sharded in this case.
struct OperatorPassage {
  TensorState in, out;
  WeightSplit split = WeightSplit::nowhere;
  std::vector<InnerSum> sums = {};
};

// Weight of an operator and the runs along which it can be sharded: outputs or inputs of the operator. Without runs it
// is replicated.
struct OperatorWeight {
  std::string name;  // weight name, or a pattern with * if several weights are alike
  Shape shape;
  std::vector<Run> outputs = {}, inputs = {};
  int output_dim = 0, input_dim = 1;
  Index alike = 1;  // number of weights with this pattern

  Shardings shardings(WeightSplit) const;
};

struct Operator;
using OperatorChain = std::vector<Operator>;

struct Operator {
  std::string name;
  Channels in, out;
  std::vector<OperatorPassage> passages;
  std::vector<OperatorWeight> weights = {};
  std::vector<OperatorChain> branches = {};  // branches of a sum, which read the same tensor; a branch without operators passes it through
};

// GEMM y = x w' + b: unsharded, sharded by outputs (column parallel) or sharded by inputs (row parallel), as far as
// both have units. Weights NAME.weight and, with a bias, NAME.bias: one for each run of the outputs, or one for all of
// them.
Operator gemm_operator(std::string name, const Channels& in, const Channels& out, const std::vector<std::string>& weights, bool bias = false);
// Operator that works on one row at a time, over all channels, for example a norm.
Operator over_rows(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights = {});
// Operator that works elementwise or within units. `sums`: all-reduces that it needs if its units are sharded.
Operator over_units(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights = {},
                    std::vector<InnerSum> sums = {});
// Operator that mixes tokens, independently for each unit: attention, convolution, scan.
Operator over_tokens(std::string name, const Channels& in, const Channels& out, std::vector<OperatorWeight> weights = {});
// Sum of the outputs of branches that read the same tensor.
Operator sum_of(std::string name, std::vector<OperatorChain> branches, const Channels& all);

// Action of the ranks on a tensor for a move from one state to another, and on its gradient in the backward:
//   keep     nothing
//   once     one rank keeps the tensor, the others set it to zero
//   take     each rank takes its own shard of the tensor
//   pad      each rank pads its shard with zeros to the full size
//   sum, gather, scatter   all-reduce, all-gather, reduce-scatter
enum class Act { keep, once, take, pad, sum, gather, scatter };
struct LayoutMove {
  TensorState from, to;
  Act forward, backward;
};
std::span<const LayoutMove> moves();

// Cost of a layout, summed over all ranks; compared field by field, in this order. Stored weights come first, because
// more tensor-parallel ranks are used to reduce memory and compute per rank.
struct LayoutCost {
  Index held = 0;    // number of stored weight elements, summed over the ranks
  Index sent = 0;    // bytes sent per row, forward and backward
  Index calls = 0;   // number of collectives, forward and backward
  Index summed = 0;  // elements of replicated weights with partial gradients: all-reduced once per step
  Index kept = 0;    // number of elements per row that operators output, summed over the ranks
  Index moves = 0;   // number of moves between states

  auto operator<=>(const LayoutCost&) const = default;
  friend LayoutCost operator+(const LayoutCost&, const LayoutCost&);
};

struct ChainLayout;
// Step of a layout: a move between states, or a passage of an operator.
struct LayoutStep {
  int op = -1;  // index of the operator in the chain; -1: a move
  TensorState in, out;
  WeightSplit split = WeightSplit::nowhere;
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
  Index narrow = 2, wide = 4;  // bytes of an element, and of an element in the accumulator's precision
  // True if all-gathered rows are not stored, so that the weight gradients gather them again. False if forward and
  // backward run together.
  bool gathers_again = true;
  // Returns true for a passage (input state, output state, weight split) that a layout may use. If empty, all are allowed.
  std::function<bool(const Operator&, const OperatorPassage&)> allowed = {};
};

// Cost of a step without its branches.
LayoutCost cost_of(const LayoutStep&, const OperatorChain&, const LayoutRules&);
// Step for a passage or for a move; empty if the units cannot be distributed evenly over the ranks.
std::optional<LayoutStep> step_of(const OperatorPassage&, const Operator&, int number, const LayoutRules&);
std::optional<LayoutStep> step_of(const LayoutMove&, const Channels&, const LayoutRules&);

// Cheapest layout from one of the `begin` states to one of the `end` states; among equal costs, the earlier states in
// these lists. Empty if there is no layout.
std::optional<ChainLayout> lay_out(const OperatorChain&, const LayoutRules&, std::span<const TensorState> begin, std::span<const TensorState> end);

// Calls visit(chain, step) for every step; the steps of branches come before the step of their sum.
void for_each_step(const OperatorChain&, const ChainLayout&, const std::function<void(const OperatorChain&, const LayoutStep&)>& visit);

}  // namespace gyr
