// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/collective.hpp"

#include <algorithm>
#include <cmath>

namespace gyr {

namespace {

// Bandwidths and latencies of the links among the ranks of a group.
class Links {
 public:
  // A group that spans several islands uses the worst links inside any of them.
  Links(const GroupPlacement& p, const Cluster& c) : Links(p, p.islands > 1 ? c : c.island(c.parts.empty() ? 0 : p.island), c.islands) {}

  // On each node, every participating rank carries its own ring to the next node, so the inter-node bandwidths add up.
  double ring_bandwidth() const {
    if (p_.nodes == 1) return part_ * node_.bandwidth;
    const double out = between_.bandwidth * p_.max_ranks_per_node;
    return part_ * (p_.max_ranks_per_node > 1 ? std::min(node_.bandwidth, out) : out);
  }
  // Ring bandwidth of reductions.
  double sums() const { return ring_bandwidth() * (p_.nodes > 1 ? between_.sums : node_.sums); }
  double inside() const { return part_ * node_.bandwidth; }
  double slowest() const { return part_ * (p_.nodes > 1 ? between_.bandwidth : node_.bandwidth); }
  double latency() const { return p_.nodes > 1 ? between_.latency : node_.latency; }
  double ring_latency() const { return (p_.nodes > 1 ? p_.nodes : 0) * between_.latency + (p_.ranks - std::max(1, p_.nodes)) * node_.latency; }
  double tree_latency() const {
    return std::ceil(std::log2(double(p_.nodes))) * between_.latency + std::ceil(std::log2(double(p_.max_ranks_per_node))) * node_.latency;
  }

 private:
  Links(const GroupPlacement& p, const Cluster& here, const Link& islands)
      : p_(p), node_(here.node), between_(p.islands > 1 ? islands : here.network), part_(here.fit.links) {}

  GroupPlacement p_;
  Link node_, between_;
  double part_;
};

// Each rank sends 1/n of its data to every other rank. Ranks of the same node use the links inside the node.
double all_to_all(double bytes, const GroupPlacement& p, const Links& links) {
  const double each = bytes / p.ranks;
  const double inside = each * (p.max_ranks_per_node - 1) / links.inside();
  const double outside = p.nodes > 1 ? each * (p.ranks - p.max_ranks_per_node) / links.slowest() : 0;
  return std::max(inside, outside) + links.latency();
}

// Seconds of one collective or point-to-point operation.
double seconds_of_one(Operation op, double bytes, const GroupPlacement& p, const Cluster& c) {
  const Links links(p, c);
  const double n = p.ranks, ring = links.ring_bandwidth();
  switch (op) {
    case Operation::all_reduce:
      return 2 * std::min((n - 1) / n * bytes / links.sums() + links.ring_latency(), bytes / links.sums() + links.tree_latency());
    case Operation::reduce_scatter: return (n - 1) / n * bytes / links.sums() + std::min(links.ring_latency(), 2 * links.tree_latency());
    case Operation::all_gather: return (n - 1) * bytes / ring + std::min(links.ring_latency(), 2 * links.tree_latency());
    case Operation::broadcast: return bytes / ring + links.tree_latency();
    case Operation::send:
    case Operation::shift: return bytes / links.slowest() + links.latency();
    case Operation::receive: return 0;
    case Operation::all_to_all: return all_to_all(bytes, p, links);
  }
  return 0;
}

}  // namespace

double seconds_of(Operation op, const Traffic& traffic, const GroupPlacement& placement, const Cluster& cluster) {
  if (traffic.calls == 0 || placement.ranks == 1) return 0;
  return double(traffic.calls) * seconds_of_one(op, double(traffic.bytes) / double(traffic.calls), placement, cluster);
}

}  // namespace gyr
