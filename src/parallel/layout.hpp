// SPDX-License-Identifier: BSD-3-Clause
// A layout as a value: axes with their sizes, the rank at each position, and the layers of each stage. A process may
// hold several layouts.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "modules/pass/sequence_layout.hpp"
#include "modules/weights/mixers.hpp"
#include "modules/weights/shard.hpp"

namespace gyr {

// Axes that weights may be sharded over (tensor parallel). Ranks of a stage that differ only along other axes hold the
// same weights.
inline constexpr Axes weight_axes = Axis::tensor;
// Axes along which ranks hold the same weights and process different tokens: gradients and losses are reduced over
// them, and ZeRO shards over them.
inline constexpr Axes token_axes = {Axis::data, Axis::context};

// Weights by the ranks of a pipeline stage that hold them, each a shard or a copy: all ranks, the ranks of a team, or the
// ranks that have the same experts.
enum class HeldBy { all, team, expert_ranks };
inline constexpr std::array<std::string_view, 3> holders_names{"holders", "team-holders", "expert-holders"};  // of their communicators
inline constexpr std::string_view name_of(HeldBy by) { return holders_names[std::size_t(by)]; }

struct LayoutAxis {
  Axis axis;
  int size;
};

struct Layout {
  std::vector<LayoutAxis> axes;  // outermost first: neighbours along the last axis have neighbouring ranks; context only if it has several ranks
  std::vector<int> permutation;  // permutation[position] = rank at that position; empty: the position itself
  std::vector<Span> stages;      // layer index range of each pipeline stage (virtual stages included)
  bool sequence = false;         // sequence parallel: tensor-parallel ranks keep shards of the residual stream's rows
  SequenceOrder order = SequenceOrder::zigzag;  // distribution of a sequence's tokens over the context-parallel ranks
  ContextMode context_mode = ContextMode::ring;
  int attention_ranks = 0;  // the first ones of the tensor ranks compute the attention of hybrid blocks, the others the SSM; 0: all compute both
  int expert = 1;           // expert-parallel size: neighbours along token_axes that shard the experts
  double expert_receive_capacity = 0;    // capacity of the expert receive buffers, in multiples of balanced routing; 0: for any routing
  Shard shard = Shard::none;             // ZeRO level: data that ranks along token_axes shard
  Index bucket_bytes = Index(32) << 20;  // bytes of gradients reduced together; ZeRO-3 gathers weights in the same buckets

  int ranks() const { return size(all_axes); }
  // Number of positions along these axes together; axes that the layout does not have count as 1.
  int size(Axes along) const;
  // Coordinates of a position along these axes, combined into one index; the innermost axis varies fastest.
  int coordinate(int position, Axes along) const;
  // Coordinates of a position by axis; for axes that are not in `along`, a single rank.
  Coordinates coordinates(int position, Axes along = all_axes) const;
  // Position whose coordinate on each axis is coordinate_along(axis).
  template <class CoordinateAlong>
  int position_at(CoordinateAlong&& coordinate_along) const {
    int position = 0;
    for (const LayoutAxis& a : axes) position = position * a.size + coordinate_along(a.axis);
    return position;
  }
  // ZeRO level, or none if there is only one rank along token_axes.
  Shard zero_shard() const { return size(token_axes) > 1 ? shard : Shard::none; }
  // ZeRO level, the number of ranks that shard, and the index of a position among them.
  ShardedOver sharded_over(int position) const { return {zero_shard(), {size(token_axes), coordinate(position, token_axes)}}; }
  // Index of a position among the expert-parallel ranks, and among the ranks with other tokens that hold the same
  // expert weights, or the same other weights.
  Coordinate experts(int position) const { return {expert, coordinate(position, token_axes) % expert}; }
  Coordinate replicas(bool of_experts, int position) const {
    return replicas_of(of_experts, {size(token_axes), coordinate(position, token_axes)}, experts(position));
  }
  // Tokens at a position for sequences of seq_length tokens: the same number on every context-parallel rank, with
  // padding at the end if they do not divide.
  SequenceLayout sequences(int position, Index batch, Index seq_length) const;
  Mixers mixers() const { return attention_ranks > 0 ? Mixers::separate(attention_ranks, size(Axis::tensor)) : Mixers::all_ranks(); }
  // Number of parts into which the rows of the residual stream are split.
  int stream_parts() const { return sequence ? size(Axis::tensor) : 1; }
  // Positions, ascending, that hold such weights together with this one.
  std::vector<int> holders(HeldBy, int position) const;
  // Text such as "2 data x 1 pipeline x 4 tensor".
  std::string text() const;
  int position_of(int rank) const;
  int rank_at(int position) const { return permutation.empty() ? position : permutation[position]; }
};

// Layout of data x pipeline x context x tensor ranks. `order`: axes, outermost first; empty: order of the enum.
Layout grid_layout(int data, int pipeline, int tensor, std::vector<Span> stages, std::vector<int> permutation = {},
                   const std::vector<Axis>& order = {}, int context = 1);

// Splits consecutive layers of the given costs into `stages` runs, so that the cost of the slowest stage is minimal.
// `before`, `after`: additional costs of the first and the last stage (embedding, head). Every stage gets at least one
// layer. `speeds`: costs of each stage are divided by its speed; empty: all stages are equally fast.
std::vector<Span> split_stages(const std::vector<double>& costs, double before, double after, int stages, const std::vector<double>& speeds = {});

// Exit::config unless `permutation` is empty or a permutation of 0 .. ranks-1.
void check_permutation(const std::vector<int>& permutation, int ranks);

}  // namespace gyr
