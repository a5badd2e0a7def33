// SPDX-License-Identifier: BSD-3-Clause
// Placement of the ranks of a layout in the cluster: the ranks counted by a dry run of parts, and the groups that
// communicate.
#pragma once

#include "src/planner/layouts/stage_contents.hpp"
#include "src/planner/machine/ranks.hpp"

namespace gyr {

// Island of a rank, and placement of each communicator of its dry run.
struct Place {
  int island = 0;
  std::vector<GroupPlacement> groups;
  bool operator==(const Place&) const = default;
};

// Placement of all ranks of a layout, stage by stage.
struct Places {
  std::vector<std::vector<Place>> kinds;                // for each representative rank: its distinct places over all stages
  std::vector<std::vector<std::vector<int>>> kinds_of;  // for each representative rank and pipeline rank: indices into `kinds`, one per island
  std::vector<GroupPlacement> replicas;                 // placement of the data-parallel group of each pipeline rank
  std::vector<GroupPlacement> expert_replicas;          // data-parallel group of the experts of each pipeline rank
  std::vector<GroupPlacement> neighbours;               // placement of each pipeline rank together with the next one
  const GroupPlacement& replicas_of(bool of_experts, int rank) const { return (of_experts ? expert_replicas : replicas)[std::size_t(rank)]; }
  GroupPlacement sharing = {};  // nodes and islands of the context-parallel group
};

class RankPlaces {
 public:
  RankPlaces(const Cluster& cluster, StageContents& contents) : cluster_(cluster), contents_(contents) {}
  // `exact`: the dry run has the context parallelism of the layout.
  const Places& of(const LayoutChoice&, const PartRun&, bool exact);

 private:
  void add_pipeline(Places&, const LayoutChoice&, const Layout&) const;
  void add_kinds(Places&, const LayoutChoice&, const Layout&, const PartsOfRank&, bool exact) const;

  const Cluster& cluster_;
  StageContents& contents_;
  std::map<std::array<int, 7>, Places> known_;
};

}  // namespace gyr
