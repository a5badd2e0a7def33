// SPDX-License-Identifier: BSD-3-Clause
// Grids and layouts for test programs that run under mpiexec.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "regression/support/cases.hpp"

namespace gyr::testing {

// Layout of eight layers in equal pipeline stages.
inline Layout layout_of(int data, int pipeline, int tensor, std::vector<int> permutation = {}, const std::vector<Axis>& order = {}) {
  std::vector<Span> stages;
  for (int s = 0; s < pipeline; ++s) stages.push_back({8 * s / pipeline, 8 * (s + 1) / pipeline});
  return grid_layout(data, pipeline, tensor, stages, std::move(permutation), order);
}

inline Layout with_sequence(Layout layout) {
  layout.sequence = true;
  return layout;
}

// The layout with the attention of hybrid blocks on the first `attention_ranks` tensor-parallel ranks, and the SSM on
// the others.
inline Layout with_separate_mixers(Layout layout, int attention_ranks) {
  layout.attention_ranks = attention_ranks;
  return layout;
}

// Layout of eight layers with context parallelism.
inline Layout layout_with_context(int data, int pipeline, int context, int tensor, SequenceOrder order = SequenceOrder::zigzag) {
  std::vector<Span> stages;
  for (int s = 0; s < pipeline; ++s) stages.push_back({8 * s / pipeline, 8 * (s + 1) / pipeline});
  Layout layout = grid_layout(data, pipeline, tensor, stages, {}, {}, context);
  layout.order = order;
  return layout;
}

// The layout with load-balanced context parallelism.
inline Layout balanced(Layout layout) {
  layout.order = SequenceOrder::contiguous, layout.context_mode = ContextMode::balanced;
  return layout;
}

// The layout with ZeRO sharding over the data-parallel ranks, in buckets.
inline Layout sharded(Layout layout, Shard shard, Index bucket_bytes = 4096) {
  layout.shard = shard, layout.bucket_bytes = bucket_bytes;
  return layout;
}

// Grid of a layout over the first ranks of the program; made once, null on the other ranks.
inline Grid* grid_of(const Layout& layout) {
  static std::map<std::string, std::unique_ptr<Grid>> grids;
  std::string key;
  for (const LayoutAxis& axis : layout.axes) key += fmt::format("{} {} ", name_of(axis.axis), axis.size);
  for (const int rank : layout.permutation) key += fmt::format("p{} ", rank);
  if (layout.sequence) key += "sequence ";
  key += fmt::format("a{} e{} {} ", layout.attention_ranks, layout.expert, layout.expert_receive_capacity);
  key += fmt::format("{}{} ", layout.order == SequenceOrder::zigzag ? "z" : "c", name_of(layout.context_mode));
  key += fmt::format("{} {} ", name_of(layout.shard), layout.bucket_bytes);
  for (const Span& stage : layout.stages) key += fmt::format("s{} ", stage.size());
  const auto [entry, fresh] = grids.try_emplace(key);
  if (fresh) {
    static const WaitPolicy patience = wait_policy_of(MPI_COMM_WORLD);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    sync_ranks();
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank < layout.ranks() ? 0 : MPI_UNDEFINED, rank, &comm);
    if (comm != MPI_COMM_NULL) {
      entry->second = std::make_unique<Grid>(layout, comm, patience);
      MPI_Comm_free(&comm);
    }
  }
  return entry->second.get();
}

// Expects every gradient to equal the expected one up to `tolerance` times its largest element. `where` names the grid
// in messages.
inline void expect_same_gradients(const NamedGradients& found, const NamedGradients& expected, double tolerance, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, gradient] : expected) {
    double error = 0, largest = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i)
      error = std::max(error, std::abs(found.at(name)[i] - gradient[i])), largest = std::max(largest, std::abs(gradient[i]));
    EXPECT_LE(error, tolerance * largest) << name << " on " << where;
  }
}

// Layouts of four layers on up to 8 ranks: every axis by itself and combined with others, virtual stages, ZeRO levels,
// and every context-parallel mode.
inline std::vector<Layout> layouts_of_four_layers() {
  const auto of = [](int data, int pipeline, int context, int tensor, int chunks = 1) {
    std::vector<Span> stages;
    for (int s = 0, n = pipeline * chunks; s < n; ++s) stages.push_back({4 * s / n, 4 * (s + 1) / n});
    return grid_layout(data, pipeline, tensor, stages, {}, {}, context);
  };
  std::vector<Layout> all{of(8, 1, 1, 1), of(1, 1, 1, 8),           of(2, 4, 1, 1),          of(1, 1, 8, 1),
                          of(1, 2, 2, 2), of(2, 2, 1, 2, 2),        of(1, 2, 1, 4),          with_sequence(of(1, 2, 1, 4)),
                          of(2, 1, 4, 1), balanced(of(1, 2, 4, 1)), balanced(of(1, 1, 3, 2))};
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::weights}) {
    all.push_back(sharded(of(4, 2, 1, 1), shard, 1));
    all.push_back(with_sequence(sharded(of(2, 1, 2, 2), shard, 1)));
  }
  Layout contiguous = of(1, 2, 3, 1), heads = of(2, 1, 2, 2);
  contiguous.order = SequenceOrder::contiguous;
  heads.context_mode = ContextMode::heads;
  all.insert(all.end(), {contiguous, heads});
  return all;
}

}  // namespace gyr::testing
