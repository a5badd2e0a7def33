// SPDX-License-Identifier: BSD-3-Clause
// Who sends how many bytes to whom in a step, and over which links: what every rank of a job hands to its communicators, taken apart into what
// passes from rank to rank. Sums, gathers and broadcasts go around a ring of the ranks in their order, which crosses from node to node as rarely as
// can be; of n ranks each passes on (kernels/device/traffic.hpp: B bytes handed over, of all_gather its part, of others the whole)
//   all_reduce 2 (n-1)/n B    reduce_scatter, broadcast (n-1)/n B    all_gather (n-1) B    shift B, to the next
//   all_to_all B/n to each    send of a pipeline B, to the peer that the task names; other sends to the next
#pragma once

#include <array>
#include <string_view>

#include "src/engine/dry_run/plan.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

enum class LinkClass { node, network, islands };
inline constexpr std::array<std::string_view, 3> link_names{"inside a node", "between nodes", "between islands"};

LinkClass link_between(int rank, int other, const Cluster&);

struct LinkTraffic {
  struct Line {
    LinkClass link;
    std::string communicator;
    Operation operation;
    double bytes;  // of all ranks together
    bool operator==(const Line&) const = default;
  };
  std::vector<Line> lines;  // by link, then by communicator; without those of no bytes
  // bytes[i * blocks + j]: from the i-th block of ranks to the j-th; and the slowest link on that way.
  int block = 1, blocks = 0;  // ranks of a block
  std::vector<double> bytes;
  std::vector<LinkClass> link;

  double of(LinkClass) const;
  double all() const;
};

// `plans`: of all positions whose data coordinate is 0, in their order; their replicas do the same. No more than so many blocks, of whole nodes where
// they are larger than one rank.
LinkTraffic link_traffic(const std::vector<RankPlan>& plans, const EngineConfig&, const Layout&, const Cluster&, int most_blocks);

}  // namespace gyr
