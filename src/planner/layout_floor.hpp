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
// Tighter, at more cost: the programs of all ranks are walked with what their parts, messages, sums and gathers take.
//
// Memory. Weights, gradients and optimizer states of the elements that are cut evenly, and what layers keep of the micro-batches under way.
#pragma once

#include "src/planner/part_run.hpp"

namespace gyr {

// Of the layers of each stage.
struct StageContent {
  std::vector<int> layers;  // by type (LayerTypes)
  bool first = false, last = false;
};

class LayoutFloor {
 public:
  LayoutFloor(const RunConfig&, int ranks, const Cluster&, const Profile*);

  struct Floor {
    double seconds = 0, bytes = 0;
  };
  // Of the best layout of a shape, from one sequence on ranks that do not share it, and from one on ranks that do.
  Floor of_shape(const LayoutChoice&);
  Floor of_shared(const LayoutChoice&);
  // Of a layout, from the dry run of its parts. Exit::config where it cannot be.
  Floor of(const LayoutChoice&);
  // The same by its programs and by the weights that its stages have.
  Floor of_programs(const LayoutChoice&);
  std::size_t dry_runs() const { return runs_.count(); }
  // Bytes of weights, gradients and optimizer states alone.
  double bytes_of_state(const LayoutChoice&);

 private:
  double bytes_of_state(const LayoutChoice&, int rank);
  struct PartElements {
    double sharded = 0, whole = 0;  // of weights that tensor ranks cut, and that each of them has
    double experts = 0;             // that are dealt
    double trained_sharded = 0, trained_whole = 0, trained_experts = 0;
    double wide = 0;     // that are their own masters
    double weights = 0;  // how many they are of
  };
  struct PartTimes {
    double forward = 0, backward_input = 0, backward_weights = 0;
  };
  struct StageTimes {
    double forward = 0, backward_input = 0, backward_weights = 0, message = 0;  // to the next stage
    std::vector<std::shared_ptr<const std::vector<PartTimes>>> parts = {};      // of each rank that stands for others
    double backward() const { return backward_input + backward_weights; }
  };
  using Placements = std::vector<GroupPlacement>;  // of each communicator of a dry run
  // Where the ranks of a grid stand, stage by stage.
  struct Places {
    std::vector<std::vector<Placements>> kinds;  // of each rank that stands for others: those that stages have
    std::vector<std::vector<int>> kind_of;       // ... of each rank of the pipeline
    std::vector<GroupPlacement> replicas;        // of each rank of the pipeline
    std::vector<GroupPlacement> neighbours;      // ... and the next one
  };
  // A dry run stands for a layout as it is, or as a floor of so many times its rows.
  struct Scale {
    double rows = 1, passes = 1;          // times: products, and passes over memory
    bool exact = true, attention = true;  // whether products inside attention and scan count
  };
  // Weights of a stage as they lie on a rank.
  struct Held {
    BucketPlan plan;
    std::vector<std::vector<double>> reduced, gathered;  // bytes of each transfer of a bucket
    double state = 0;                                    // bytes
  };
  const Held& held_by(const RunConfig&, const Layout&, int stage);
  double seconds_of(const EngineConfig&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const std::vector<const Held*>&,
                    int micros);
  TaskTimes times_of(const Program&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const Held&, int rank);
  double step_of(const LayoutChoice&, int rank);
  // Of as many sequences in a micro-batch, and on so many ranks, as the layout has.
  Scale scale_of(const LayoutChoice&, Index context) const;

  const std::vector<StageContent>& contents_of(const LayoutChoice&);
  const std::vector<Span>& stages_of(const LayoutChoice&);
  Layout layout_of(const LayoutChoice&);
  PartElements elements_of(const StageContent&) const;
  double trained_on(const PartElements&, const LayoutChoice&, bool with_experts) const;
  double elements_on(const PartElements&, const LayoutChoice&) const;
  double seconds_of(const PartCount&, const Placements&, const Scale&) const;
  const Places& places_of(const LayoutChoice&, const PartRun&, bool exact);
  std::vector<StageTimes> times_of(const LayoutChoice&, const PartRun&, const Places&, const Scale&);
  double seconds_of(const LayoutChoice&, const Places&, const std::vector<StageTimes>&);
  double bytes_of_kept(const LayoutChoice&, const PartsOfRank&, int rank);
  double least_kept(const LayoutChoice&, const PartRun&, int rank);
  Floor of_best(const LayoutChoice& shape, const Places&, const std::vector<StageTimes>&);
  // Seconds at least that attention waits for tokens of other ranks, in a layer.
  double meeting(const LayoutChoice&) const;
  int in_flight(const LayoutChoice&, int rank, int chunk);

  const RunConfig& run_;
  int ranks_;
  const Cluster& cluster_;
  bool measured_;  // kernels
  LayerTypes types_;
  PartRuns runs_;
  std::vector<PartElements> elements_;  // of each part
  std::map<std::pair<int, int>, std::vector<Span>> stages_;
  std::map<std::pair<int, int>, std::vector<StageContent>> contents_;
  std::map<std::array<int, 4>, std::vector<int>> in_flight_;
  std::map<std::array<int, 7>, Places> places_;
  std::map<std::string, Held> held_;
};

}  // namespace gyr
