// SPDX-License-Identifier: BSD-3-Clause
// A layout is a value: axes with their sizes, which rank stands where, and which layers each stage holds.
// A process may hold several.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "modules/pass/sequence_layout.hpp"
#include "modules/weights/mixers.hpp"
#include "modules/weights/shard.hpp"

namespace gyr {

// Weights may be sharded over these axes. Ranks of a stage that differ along others hold the same weights.
inline constexpr Axes weight_axes = Axis::tensor;
// Along these, ranks hold the same weights and work on other tokens: gradients and losses are summed over them, and what they keep of weights may
// be cut among them.
inline constexpr Axes token_axes = {Axis::data, Axis::context};

struct LayoutAxis {
  Axis axis;
  int size;
};

struct Layout {
  std::vector<LayoutAxis> axes;  // outermost first: neighbours along the last axis are neighbours in rank; context only where it is shared
  std::vector<int> permutation;  // permutation[position] = rank that stands there; empty: position itself
  std::vector<Span> stages;      // layers of each position of the pipeline axis
  bool sequence = false;         // ranks of the tensor axis keep shares of the residual stream's rows (sequence parallelism)
  SequenceOrder order = SequenceOrder::zigzag;  // of the tokens on the ranks of the context axis
  ContextMode context_mode = ContextMode::ring;
  int attention_ranks = 0;               // the first so many tensor ranks compute attention of hybrid blocks, the others the SSM; 0: all compute both
  int expert = 1;                        // neighbours among ranks with other tokens that deal experts among themselves
  double expert_room = 0;                // rows for which they have memory, in even shares of theirs; 0: for any routing
  Shard shard = Shard::none;             // what ranks along token_axes cut among themselves
  Index bucket_bytes = Index(32) << 20;  // of gradients that are reduced together; weights are gathered in the same buckets

  int ranks() const { return size(all_axes); }
  // Positions along these axes together: 1 along axes that the layout does not have.
  int size(Axes along) const;
  // Which of them a position of the grid is: its coordinates along these axes as one number, that of the innermost counting fastest.
  int coordinate(int position, Axes along) const;
  // The same axis by axis; along axes that are not among these a rank is alone.
  Coordinates coordinates(int position, Axes along = all_axes) const;
  // The position with the coordinates that `coordinate_along` says.
  template <class CoordinateAlong>
  int position_at(CoordinateAlong&& coordinate_along) const {
    int position = 0;
    for (const LayoutAxis& a : axes) position = position * a.size + coordinate_along(a.axis);
    return position;
  }
  // What is cut, where there is more than one to cut it.
  Shard cut() const { return size(token_axes) > 1 ? shard : Shard::none; }
  // The same, among which ranks, and which of them a position is.
  ShardedOver sharded_over(int position) const { return {cut(), {size(token_axes), coordinate(position, token_axes)}}; }
  // Of the ranks that deal experts among themselves, and of those with other tokens that hold the same of experts, or of all else: which one a
  // position is.
  Coordinate experts(int position) const { return {expert, coordinate(position, token_axes) % expert}; }
  Coordinate replicas(bool of_experts, int position) const {
    return replicas_of(of_experts, {size(token_axes), coordinate(position, token_axes)}, experts(position));
  }
  // The tokens that a position has of sequences of so many: as many on every rank of the context axis, the last ones mere padding where they do not
  // divide.
  SequenceLayout sequences(int position, Index batch, Index seq_length) const;
  Mixers mixers() const { return attention_ranks > 0 ? Mixers::apart(attention_ranks, size(Axis::tensor)) : Mixers::together(); }
  // Parts of the residual stream's rows.
  int stream_parts() const { return sequence ? size(Axis::tensor) : 1; }
  // As "2 data x 1 pipeline x 4 tensor".
  std::string text() const;
  int position_of(int rank) const;
  int rank_at(int position) const { return permutation.empty() ? position : permutation[position]; }
};

// data x pipeline x context x tensor ranks, in this or another order of the axes. An empty order is that of their enumeration.
Layout grid_layout(int data, int pipeline, int tensor, std::vector<Span> stages, std::vector<int> permutation = {},
                   const std::vector<Axis>& order = {}, int context = 1);

// Cuts consecutive layers of the given costs into `stages` runs so that the dearest stage is as cheap as can be; `before` and `after`
// are what the first and the last stage carry besides (embedding, head). Every stage gets at least one layer. `speeds`: of each stage, by which its
// costs are divided; none: all alike.
std::vector<Span> split_stages(const std::vector<double>& costs, double before, double after, int stages, const std::vector<double>& speeds = {});

// Exit::config unless `permutation` is empty or an arrangement of 0 .. ranks-1.
void check_permutation(const std::vector<int>& permutation, int ranks);

}  // namespace gyr
