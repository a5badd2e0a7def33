// SPDX-License-Identifier: BSD-3-Clause
// Lower bound of the seconds of a micro-batch on each stage of a layout. It is the sum over the parts of the stage from
// their dry run (part_run.hpp), on the slowest representative rank. A task with host copies takes the maximum of
// computation and copies if they overlap, otherwise their sum, plus exposed communication.
#pragma once

#include <memory>

#include "src/planner/layouts/rank_places.hpp"

namespace gyr {

// Scaling of a dry run. The dry run has either the rows of the layout (exact), or its counts are scaled to a lower
// bound for another number of rows.
struct Scale {
  double rows = 1, passes = 1;          // factors for GEMMs and for memory-bound kernels
  bool exact = true, attention = true;  // `attention`: count GEMMs inside attention and scan
  double most = 1;                      // upper bound of the factor for any computation
  bool calls = true;                    // false: the head, which processes its rows in blocks, may make fewer calls than in the dry run
  double waits = 0;                     // minimum seconds per layer that attention waits for tokens of other ranks
  int attention_ranks = 0;              // tensor-parallel ranks that compute attention if mixers are on different ranks
};

struct PartSeconds {
  double compute = 0, transfers = 0;
  PartSeconds& operator+=(const PartSeconds& other) { return compute += other.compute, transfers += other.transfers, *this; }
  friend PartSeconds operator*(int count, const PartSeconds& s) { return {count * s.compute, count * s.transfers}; }
  double sum() const { return compute + transfers; }
};

struct PartTimes {
  PartSeconds forward = {}, backward_input = {}, backward_weights = {};
  double copying = 0;  // seconds of host copies in one direction
};

// Times of all parts on one kind of rank.
struct TimesThere {
  std::vector<PartTimes> parts;  // the embedding, one layer of each type, the head; with offload also one layer of each type that is not offloaded
  const Cluster& island;
};

struct StageTimes {
  // seconds per micro-batch; message: seconds to send its activations to the next stage
  double forward = 0, backward_input = 0, backward_weights = 0, message = 0;
  std::vector<std::shared_ptr<const TimesThere>> parts = {};  // part times, one entry per representative rank
  double backward() const { return backward_input + backward_weights; }
};

class StageBound {
 public:
  // `backwards`: every layer runs a backward pass. `measured`: kernel times come from a profile, which gives no bound
  // for other row counts.
  StageBound(const RunConfig&, const Cluster&, StageContents&, bool backwards, bool measured);

  std::vector<StageTimes> of(const LayoutChoice&, const PartRun&, const Places&, const Scale&, const FractionRange&);
  // Times from a dry run with the rows of the layout. They do not depend on schedule and sharding level, so layouts
  // that differ only in these use the same result.
  const std::vector<StageTimes>& of(const LayoutChoice&, const PartRun&, const Places&, const FractionRange&);
  // Scale from a dry run of one sequence per micro-batch on `context` context-parallel ranks to the layout's sequences
  // and ranks.
  Scale scale_of(const LayoutChoice&, Index context) const;
  // Minimum seconds per layer that attention waits for tokens of other ranks: the latency of its messages.
  double meeting(const LayoutChoice&, const Places&) const;
  // Seconds of one computation task of a program on one kind of rank.
  double seconds_of(const Task&, const Span& stage, const TimesThere&) const;

 private:
  PartSeconds seconds_of(const PartCount&, const Place&, const Scale&) const;
  TimesThere times_there(const PartsOfRank&, const Place&, const Scale&, const FractionRange&) const;
  void add_stage(StageTimes&, const StageContent&, const TimesThere&) const;
  bool attends(char symbol, const PartsOfRank&, const Scale&) const;

  const RunConfig& run_;
  const Cluster& cluster_;
  StageContents& contents_;
  const LayerTypes& types_;
  bool backwards_, measured_;
  using Exact = std::tuple<const PartRun*, const Places*, int, double, double>;
  std::map<Exact, std::vector<StageTimes>> exact_;
};

}  // namespace gyr
