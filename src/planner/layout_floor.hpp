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
// A task that copies to or from the host takes as long as its computation and its copies each do, beside what it waits for other ranks; that is what
// f and b are then made of. Where the share of rows that are swapped is still to be found, the least is told of several ranges of it: in each what
// the most makes again, and what the least copies, both between what none and all do.
//
// Memory. Weights, gradients and optimizer states of the elements that are cut evenly, and what layers keep of the micro-batches under way; of those
// that swap, what one of them needs while it goes back. On the host what they swap.
#pragma once

#include <array>

#include "src/planner/memory_taken.hpp"
#include "src/planner/part_run.hpp"

namespace gyr {

// Of the layers of each stage.
struct StageContent {
  std::vector<int> layers;   // by type (LayerTypes)
  std::vector<int> staying;  // of them, those that do not swap where others do
  bool first = false, last = false;
};

class LayoutFloor {
 public:
  LayoutFloor(const RunConfig&, int ranks, const Cluster&, const Profile*);

  struct Floor {
    double seconds = 0;
    MemoryTaken taken = {};
  };
  // Of the best layout of a shape, from one sequence on ranks that do not share it: as if all were kept, and where layers swap as they do, with the
  // shape's recomputation. From one on ranks that share it.
  Floor of_shape(const LayoutChoice&);
  Floor of_swapping(const LayoutChoice&);
  Floor of_shared(const LayoutChoice&);
  // Of a layout, from the dry run of its parts. Exit::config where it cannot be.
  Floor of(const LayoutChoice&);
  // The same by its programs and by the weights that its stages have.
  Floor of_programs(const LayoutChoice&);
  std::size_t dry_runs() const { return runs_.count(); }

 private:
  double bytes_of_state(const LayoutChoice&, int rank);
  MemoryTaken states_of(const LayoutChoice&);
  // What a rank of the pipeline takes at least.
  void add(MemoryTaken&, const LayoutChoice&, int rank, double bytes, double host = 0);
  struct PartElements {
    double sharded = 0, whole = 0;  // of weights that tensor ranks cut, and that each of them has
    double experts = 0;             // that are dealt
    double trained_sharded = 0, trained_whole = 0, trained_experts = 0;
    double wide = 0;     // that are their own masters
    double weights = 0;  // how many they are of
  };
  struct Seconds {
    double compute = 0, transfers = 0;
    Seconds& operator+=(const Seconds& other) { return compute += other.compute, transfers += other.transfers, *this; }
    friend Seconds operator*(int count, const Seconds& s) { return {count * s.compute, count * s.transfers}; }
    double sum() const { return compute + transfers; }
  };
  struct PartTimes {
    Seconds forward = {}, backward_input = {}, backward_weights = {};
    double copying = 0;  // in one direction
  };
  struct TimesThere {
    std::vector<PartTimes> parts;  // the embedding, a layer of each type, the head, and where layers swap one of each type that does not
    const Cluster& island;
  };
  struct StageTimes {
    double forward = 0, backward_input = 0, backward_weights = 0, message = 0;  // to the next stage
    std::vector<std::shared_ptr<const TimesThere>> parts = {};                  // of each rank that stands for others
    double backward() const { return backward_input + backward_weights; }
  };
  // Of a rank, and of each communicator of its dry run.
  struct Place {
    int island = 0;
    std::vector<GroupPlacement> groups;
    bool operator==(const Place&) const = default;
  };
  // Where the ranks of a grid stand, stage by stage.
  struct Places {
    std::vector<std::vector<Place>> kinds;                // of each rank that stands for others: those that stages have
    std::vector<std::vector<std::vector<int>>> kinds_of;  // ... of each rank of the pipeline, on each island that it is on
    std::vector<GroupPlacement> replicas;                 // of each rank of the pipeline
    std::vector<GroupPlacement> expert_replicas;          // ... of its experts
    std::vector<GroupPlacement> neighbours;               // ... and the next one
    const GroupPlacement& replicas_of(bool of_experts, int rank) const { return (of_experts ? expert_replicas : replicas)[std::size_t(rank)]; }
    GroupPlacement sharing = {};  // of ranks that share sequences
  };
  // A dry run stands for a layout as it is, or as a floor of so many times its rows.
  struct Scale {
    double rows = 1, passes = 1;          // times: products, and passes over memory
    bool exact = true, attention = true;  // whether products inside attention and scan count
    double most = 1;                      // times at most: whatever is computed
    bool calls = true;                    // whether the head, which goes over its rows in blocks, has as many calls at least
    double waits = 0;                     // seconds at least that attention waits for others' tokens, in a layer ...
    int attention_ranks = 0;              // ... on these where mixers are apart
  };
  // Weights of a stage as they lie on a rank.
  struct Travelling {
    double bytes = 0;
    bool of_experts = false;
  };
  struct Held {
    BucketPlan plan;
    std::vector<std::vector<Travelling>> reduced, gathered;  // each transfer of a bucket
    std::vector<double> cleared = {};                        // bytes of a bucket's gradients
    double state = 0;                                        // bytes
  };
  const Held& held_by(const RunConfig&, const Layout&, int stage);
  Simulation walk(const EngineConfig&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const std::vector<const Held*>&,
                  int micros);
  TaskTimes times_of(const Program&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const Held&, int rank);
  double seconds_of(const Task&, const Span& stage, const TimesThere&) const;
  TimesThere times_there(const PartsOfRank&, const Place&, const Scale&, const Shares&) const;
  static bool attends(char symbol, const PartsOfRank&, const Scale&);
  void add_stage(StageTimes&, const StageContent&, const TimesThere&) const;
  double step_of(const LayoutChoice&, int rank);
  // Elements of a rank: of experts, which fewer ranks have, and of all else.
  struct Elements {
    double others = 0, experts = 0;
    Elements& operator+=(const Elements& e) { return others += e.others, experts += e.experts, *this; }
    friend Elements operator*(double times, const Elements& e) { return {times * e.others, times * e.experts}; }
    friend Elements most_of(const Elements& a, const Elements& b) { return {std::max(a.others, b.others), std::max(a.experts, b.experts)}; }
    Elements less(const Elements& e) const { return {std::max(0.0, others - e.others), std::max(0.0, experts - e.experts)}; }
    double sum() const { return others + experts; }
  };
  // Those that a rank of the pipeline clears and reduces, and gathers twice, for each micro-batch.
  struct Turning {
    Elements trained, gathered;
  };
  double seconds_of(Operation, const Elements&, double bytes_of_one, const Places&, int rank) const;
  Turning turning_of(const LayoutChoice&, int rank);
  // Of as many sequences in a micro-batch, and on so many ranks, as the layout has.
  Scale scale_of(const LayoutChoice&, Index context) const;

  const std::vector<StageContent>& contents_of(const LayoutChoice&);
  const std::vector<Span>& stages_of(const LayoutChoice&);
  Layout layout_of(const LayoutChoice&);
  // Islands on which the first rank of each stage, or a replica of it, is.
  const std::vector<std::vector<int>>& islands_of(const LayoutChoice&);
  PartElements elements_of(const StageContent&) const;
  const std::vector<PartElements>& elements_of(const LayoutChoice&);  // of each stage
  Elements trained_on(const PartElements&, const LayoutChoice&) const;
  Elements sharded_on(const PartElements&, const LayoutChoice&) const;
  Elements elements_on(const PartElements&, const LayoutChoice&) const;
  // Of those that are cut where the layout cuts so much.
  static double part_of(const Elements&, const LayoutChoice&, Shard level);
  Seconds seconds_of(const PartCount&, const Place&, const Scale&) const;
  static double with_copies(const Seconds&, double copying, const Cluster& island);
  bool swaps(const Span& stage, Index layer) const;
  Floor of_one_sequence(const LayoutChoice&, const PartRun&, const Shares&);
  Floor of_swapping(const LayoutChoice&, const Shares&);
  Floor of_shared(const LayoutChoice&, const Shares&);
  Floor of(const LayoutChoice&, const Shares&);
  Floor of_programs(const LayoutChoice&, const Shares&);
  // Of the shares that a run may have the least.
  using FloorOf = Floor (LayoutFloor::*)(const LayoutChoice&, const Shares&);
  Floor least_of(FloorOf, const LayoutChoice&, double finest = 1.0 / 32);
  // The shares of rows that are swapped, of those that are asked for.
  Shares within(const Shares&, const LayoutChoice&) const;
  const Places& places_of(const LayoutChoice&, const PartRun&, bool exact);
  std::vector<StageTimes> times_of(const LayoutChoice&, const PartRun&, const Places&, const Scale&, const Shares&);
  double seconds_of(const LayoutChoice&, const Places&, const std::vector<StageTimes>&);
  double bytes_of_kept(const LayoutChoice&, const PartRun&, const PartsOfRank&, int rank, const Shares&);
  double bytes_of_swapping(const LayoutChoice&, const PartsOfRank&, int rank, const Shares&);
  double bytes_on_host(const LayoutChoice&, const PartsOfRank&, int rank, const Shares&);
  double least_kept(const LayoutChoice&, const PartRun&, int rank, const Shares&);
  double least_on_host(const LayoutChoice&, const PartRun&, int rank, const Shares&);
  Floor of_best(const LayoutChoice& shape, const Places&, const std::vector<StageTimes>&);
  // Seconds at least that attention waits for tokens of other ranks, in a layer.
  double meeting(const LayoutChoice&, const Places&) const;
  int in_flight(const LayoutChoice&, int rank, int chunk);
  Index message_bytes(const LayoutChoice&) const;  // of activations that go to the next stage

  const RunConfig& run_;
  int ranks_;
  const Cluster& cluster_;
  Cluster largest_;  // memory that any island has
  double passes_;    // bytes a second over memory, on the fastest
  bool measured_;    // kernels
  bool backwards_;   // all layers go back
  LayerTypes types_;
  PartRuns runs_;
  std::vector<PartElements> elements_;  // of each part
  // By what stages depend on: the pipeline, and with islands where ranks stand.
  using Staged = std::array<int, 6>;
  Staged staged(const LayoutChoice&) const;
  std::map<Staged, std::vector<Span>> stages_;
  std::map<Staged, std::vector<StageContent>> contents_;
  std::map<Staged, std::vector<std::vector<int>>> islands_;
  std::map<Staged, std::vector<PartElements>> elements_of_stages_;
  std::map<std::array<int, 4>, std::vector<int>> in_flight_;
  std::map<std::array<int, 7>, Places> places_;
  std::map<std::string, Held> held_;
};

}  // namespace gyr
