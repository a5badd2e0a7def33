// SPDX-License-Identifier: BSD-3-Clause
// Lower bounds of the step time and of the memory of a layout. They never exceed the prediction of the same layout, so that the search does not
// discard the best one. Nothing here is an estimate: anything that is uncertain counts as zero.
//
// Time. Symbols:
//   f, b     forward and backward time of a micro-batch on a stage;  F_r, B_r: their sums over the stages of pipeline rank r
//   m        micro-batches per step;  u: time of one pipeline message
//   R_r, G_r gradient reductions and weight gathers of rank r;  S: optimizer step
// The bound is the maximum of three terms:
//   pipeline fill before the first forward of rank r, its own work, and pipeline drain after its last backward (the backwards of all earlier stages)
//     max over r of  sum over s < r of (f_s + u) + m (F_r + B_r) + sum over s < r of (b_s + u) + S
//   gradient reductions, which start with the last backward of a chunk and run one after another
//     sum over s < r of (f_s + u) + min over chunks of (m f + (m - 1) b) + R_r + S
//   weights that are gathered after the previous step, which the first forward of the last part and therefore all backwards wait for
//     G_r + m B_r + sum over s < r of (b_s + u) + S
// With split backwards (zero bubble) the drain is left out, because earlier stages compute input gradients before the weight gradients of rank r.
//
// A tighter and slower bound executes the programs of all ranks with lower bounds for their parts, messages, reductions and gathers
// (program_bound.hpp).
//
// If activation.alpha is auto, the bound is the minimum over several ranges of alpha. For a range it counts the recomputation at the largest alpha
// and the host copies at the smallest alpha, both interpolated linearly between alpha = 0 and alpha = 1.
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
  // Bound of the best layout of a shape, from a dry run of one sequence without context parallelism. of_shape() assumes
  // that all activations are kept; of_offloading() assumes the offload and the recomputation of the shape. of_shared()
  // uses a dry run with the shape's context parallelism.
  Floor of_shape(const LayoutChoice&);
  Floor of_offloading(const LayoutChoice&);
  Floor of_shared(const LayoutChoice&);
  // Bound of one layout, from the dry run of its parts: embedding, layer types and head. Throws Exit::config if the
  // layout is impossible.
  Floor of(const LayoutChoice&);
  // Tighter bound of one layout, from the programs of its ranks and the actual weights of its stages.
  Floor of_programs(const LayoutChoice&);
  std::size_t dry_runs() const { return runs_.count(); }

 private:
  Floor of_one_sequence(const LayoutChoice&, const PartRun&, const FractionRange&);
  Floor of_offloading(const LayoutChoice&, const FractionRange&);
  Floor of_shared(const LayoutChoice&, const FractionRange&);
  Floor of(const LayoutChoice&, const FractionRange&);
  Floor of_programs(const LayoutChoice&, const FractionRange&);
  Floor of_best(const LayoutChoice& shape, const Places&, const std::vector<StageTimes>&);
  // Smallest bound over all values of activation.alpha that the run may use. Ranges of alpha are halved down to
  // `finest`.
  using BoundOf = Floor (LayoutBound::*)(const LayoutChoice&, const FractionRange&);
  Floor least_of(BoundOf, const LayoutChoice&, double finest = 1.0 / 32);
  // Range of the fraction of rows actually offloaded for a requested range. The count of offloaded rows is rounded to
  // blocks.
  FractionRange within(const FractionRange&, const LayoutChoice&) const;
  double seconds_of(const LayoutChoice&, const Places&, const std::vector<StageTimes>&);

  const RunConfig& run_;
  const Cluster& cluster_;
  PartRuns runs_;
  bool backwards_;  // true if every layer runs a backward pass
  StageContents contents_;
  WeightShards weights_;
  MemoryBound memory_;
  RankPlaces places_;
  StageBound stages_;
  ReplicaBound replicas_;
  ProgramBound programs_;
};

}  // namespace gyr
