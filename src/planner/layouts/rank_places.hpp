// SPDX-License-Identifier: BSD-3-Clause
// Where the ranks of a layout stand: those that a part run has counted, and those that share their work.
#pragma once

#include "src/planner/layouts/stage_contents.hpp"
#include "src/planner/machine/ranks.hpp"

namespace gyr {

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

class RankPlaces {
 public:
  RankPlaces(const Cluster& cluster, StageContents& contents) : cluster_(cluster), contents_(contents) {}
  // `exact`: the run's ranks share sequences as the layout's do.
  const Places& of(const LayoutChoice&, const PartRun&, bool exact);

 private:
  void add_pipeline(Places&, const LayoutChoice&, const Layout&) const;
  void add_kinds(Places&, const LayoutChoice&, const Layout&, const PartsOfRank&, bool exact) const;

  const Cluster& cluster_;
  StageContents& contents_;
  std::map<std::array<int, 7>, Places> known_;
};

}  // namespace gyr
