// SPDX-License-Identifier: BSD-3-Clause
// What no layout can be faster, or smaller, than: bounds below the prediction and the plan of the same layout, for a search that must not lose the
// best. Nothing here is an estimate: where something is not sure, less is said.
//
// Time. With f and b what the forward and the backward of a micro-batch take on a stage, F and B their sums over the stages of a pipeline rank r, of
// p ranks with m micro-batches, u the messages, R the sums of gradients, G the gathers of weights and S the step of a rank:
//   what comes before its first forward, its own work, and behind its last backward those of all stages before
//     max over r of  sum over s < r of (f_s + u) + m (F_r + B_r) + sum over s < r of (b_s + u) + S
//   sums of gradients begin with the last backward of a chunk, and follow each other
//     sum over s < r of (f_s + u) + min over chunks of (m f + (m - 1) b) + R_r + S
//   weights that are gathered behind a step are awaited by the first forward of the last part, and so by all backwards
//     G_r + m B_r + sum over s < r of (b_s + u) + S
// where backwards are split, the earlier stages' come before gradients of weights, and are left out.
//
// Tighter, at more cost: the programs of all ranks are walked with what their parts, messages, sums and gathers take (program_bound.hpp).
//
// Where the share of rows that are swapped is still to be found, the least is told of several ranges of it: in each what the most makes again, and
// what the least copies, both between what none and all do.
//
// Memory: memory_bound.hpp.
#pragma once

#include "src/planner/bounds/memory_bound.hpp"
#include "src/planner/bounds/program_bound.hpp"

namespace gyr {

class LayoutBound {
 public:
  LayoutBound(const RunConfig&, const Cluster&, const Profile*);

  struct Floor {
    double seconds = 0;
    MemoryTaken taken = {};
  };
  // Of the best layout of a shape, from one sequence on ranks that do not share it: as if all were kept, and where layers swap as they do, with the
  // shape's recomputation. From one on ranks that share it.
  Floor of_shape(const LayoutChoice&);
  Floor of_offloading(const LayoutChoice&);
  Floor of_shared(const LayoutChoice&);
  // Of a layout, from the dry run of its parts. Exit::config where it cannot be.
  Floor of(const LayoutChoice&);
  // The same by its programs and by the weights that its stages have.
  Floor of_programs(const LayoutChoice&);
  std::size_t dry_runs() const { return runs_.count(); }

 private:
  Floor of_one_sequence(const LayoutChoice&, const PartRun&, const Shares&);
  Floor of_offloading(const LayoutChoice&, const Shares&);
  Floor of_shared(const LayoutChoice&, const Shares&);
  Floor of(const LayoutChoice&, const Shares&);
  Floor of_programs(const LayoutChoice&, const Shares&);
  Floor of_best(const LayoutChoice& shape, const Places&, const std::vector<StageTimes>&);
  // Of the shares that a run may have the least.
  using BoundOf = Floor (LayoutBound::*)(const LayoutChoice&, const Shares&);
  Floor least_of(BoundOf, const LayoutChoice&, double finest = 1.0 / 32);
  // The shares of rows that are swapped, of those that are asked for.
  Shares within(const Shares&, const LayoutChoice&) const;
  double seconds_of(const LayoutChoice&, const Places&, const std::vector<StageTimes>&);

  const RunConfig& run_;
  const Cluster& cluster_;
  PartRuns runs_;
  bool backwards_;  // all layers go back
  StageContents contents_;
  WeightShards weights_;
  MemoryBound memory_;
  RankPlaces places_;
  StageBound stages_;
  ReplicaBound replicas_;
  ProgramBound programs_;
};

}  // namespace gyr
