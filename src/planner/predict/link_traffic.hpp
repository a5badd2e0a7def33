// SPDX-License-Identifier: BSD-3-Clause
// Bytes of a step by sender, receiver and link class. The bytes that every rank passes to its communicators are split into bytes between pairs of
// ranks. Reductions, all-gathers and broadcasts use a ring of the ranks in rank order, which crosses between nodes as rarely as possible. Each of n
// ranks sends, with B the bytes passed to the call (kernels/device/traffic.hpp; its shard for an all-gather, the full tensor otherwise):
//   all_reduce 2 (n-1)/n B    reduce_scatter, broadcast (n-1)/n B    all_gather (n-1) B    shift B, to the next rank
//   all_to_all B/n to each    pipeline send B, to the peer of its task                     any other send B, to the next rank
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
    double bytes;  // bytes per step, summed over all ranks
    bool operator==(const Line&) const = default;
  };
  std::vector<Line> lines;  // sorted by link, then by communicator; lines with 0 bytes are left out
  // bytes[i * blocks + j] is sent from rank block i to rank block j, and by_link[l][i * blocks + j] of it over link class l.
  int block = 1, blocks = 0;  // ranks per block, number of blocks
  std::vector<double> bytes;
  std::array<std::vector<double>, link_names.size()> by_link;

  double of(LinkClass) const;
  double all() const;
};

// `plans`: one per position with data coordinate 0, in order; other data-parallel replicas send the same. The matrix
// has at most `most_blocks` blocks; a block of more than one rank consists of full nodes.
LinkTraffic link_traffic(const std::vector<RankPlan>& plans, const EngineConfig&, const Layout&, const Cluster&, int most_blocks);

}  // namespace gyr
