// SPDX-License-Identifier: BSD-3-Clause
// What a micro-batch takes on each stage of a layout, in seconds: its parts from a dry run of each (part_run.hpp), on the slowest of the ranks that
// stand for others.
//
// A task that copies to or from the host takes as long as its computation and its copies each do, beside what it waits for other ranks.
#pragma once

#include <memory>

#include "src/planner/layouts/rank_places.hpp"

namespace gyr {

// A dry run stands for a layout as it is, or as a floor of so many times its rows.
struct Scale {
  double rows = 1, passes = 1;          // times: products, and passes over memory
  bool exact = true, attention = true;  // whether products inside attention and scan count
  double most = 1;                      // times at most: whatever is computed
  bool calls = true;                    // whether the head, which goes over its rows in blocks, has as many calls at least
  double waits = 0;                     // seconds at least that attention waits for others' tokens, in a layer ...
  int attention_ranks = 0;              // ... on these where mixers are apart
};

struct PartSeconds {
  double compute = 0, transfers = 0;
  PartSeconds& operator+=(const PartSeconds& other) { return compute += other.compute, transfers += other.transfers, *this; }
  friend PartSeconds operator*(int count, const PartSeconds& s) { return {count * s.compute, count * s.transfers}; }
  double sum() const { return compute + transfers; }
};

struct PartTimes {
  PartSeconds forward = {}, backward_input = {}, backward_weights = {};
  double copying = 0;  // in one direction
};

// On one kind of rank.
struct TimesThere {
  std::vector<PartTimes> parts;  // the embedding, a layer of each type, the head, and where layers swap one of each type that does not
  const Cluster& island;
};

struct StageTimes {
  double forward = 0, backward_input = 0, backward_weights = 0, message = 0;  // to the next stage
  std::vector<std::shared_ptr<const TimesThere>> parts = {};                  // of each rank that stands for others
  double backward() const { return backward_input + backward_weights; }
};

class StageBound {
 public:
  // `backwards`: all layers go back. `measured`: kernels, of which nothing is known for other rows.
  StageBound(const RunConfig&, const Cluster&, StageContents&, bool backwards, bool measured);

  std::vector<StageTimes> of(const LayoutChoice&, const PartRun&, const Places&, const Scale&, const Shares&);
  // Of a run that has the layout's rows. The schedule and the shard level change nothing: layouts that differ in these alone share it.
  const std::vector<StageTimes>& of(const LayoutChoice&, const PartRun&, const Places&, const Shares&);
  // Of as many sequences in a micro-batch, and on so many ranks, as the layout has, by a run of one on `context` ranks.
  Scale scale_of(const LayoutChoice&, Index context) const;
  // Seconds at least that attention waits for tokens of other ranks, in a layer.
  double meeting(const LayoutChoice&, const Places&) const;
  // Of a computation of a program on one kind of rank.
  double seconds_of(const Task&, const Span& stage, const TimesThere&) const;

 private:
  PartSeconds seconds_of(const PartCount&, const Place&, const Scale&) const;
  TimesThere times_there(const PartsOfRank&, const Place&, const Scale&, const Shares&) const;
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
