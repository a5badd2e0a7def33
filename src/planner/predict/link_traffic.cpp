// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/predict/link_traffic.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "src/planner/machine/ranks.hpp"

namespace gyr {

namespace {

// Fraction of a rank's pipeline sends that goes to each peer, from the tasks that the dry run has counted.
std::map<int, double> parts_by_peer(const RankPlan& plan, const EngineConfig& config, const Layout& layout) {
  const PipelineShape shape = pipeline_shape(layout, config.micros);
  std::map<int, double> bytes;
  double all = 0;
  const Program program = compile(config.schedule, shape, layout.coordinate(plan.position, Axis::pipeline), plan.buckets);
  for (std::size_t i = 0; i < std::min(program.tasks.size(), plan.tasks.of_task.size()); ++i) {
    if (program.tasks[i].op != Op::send) continue;
    for (const TrafficCount& c : plan.tasks.counts[std::size_t(plan.tasks.of_task[i])].traffic)
      bytes[program.tasks[i].peer] += double(c.of(Operation::send).bytes), all += double(c.of(Operation::send).bytes);
  }
  for (auto& [peer, part] : bytes) part = all > 0 ? part / all : 0;
  return bytes;
}

class TrafficWalk {
 public:
  TrafficWalk(const std::vector<RankPlan>& plans, const EngineConfig& config, const Layout& layout, const Cluster& cluster, int most_blocks)
      : layout_(layout), cluster_(cluster), inverse_(std::size_t(layout.ranks())) {
    for (int position = 0; position < layout.ranks(); ++position) inverse_[std::size_t(layout.rank_at(position))] = position;
    for (const RankPlan& plan : plans) {
      plans_[plan.position] = &plan;
      if (layout.size(Axis::pipeline) > 1) peers_[plan.position] = parts_by_peer(plan, config, layout);
    }
    const int per_node = int(cluster.per_node), ranks = layout.ranks();
    if (ranks > most_blocks) traffic_.block = per_node * ((ranks + per_node * most_blocks - 1) / (per_node * most_blocks));
    traffic_.blocks = (ranks + traffic_.block - 1) / traffic_.block;
    traffic_.bytes.resize(std::size_t(traffic_.blocks) * std::size_t(traffic_.blocks));
    for (std::vector<double>& bytes : traffic_.by_link) bytes.resize(traffic_.bytes.size());
  }

  LinkTraffic all() {
    std::map<std::string, std::vector<bool>> seen;  // by communicator: positions whose traffic is already added
    for (int position = 0; position < layout_.ranks(); ++position)
      for (const CommunicatorTraffic& c : plan_of(position).traffic) {
        if (c.size == 1 || c.count.lines().empty()) continue;
        std::vector<bool>& done = seen.try_emplace(c.name, std::size_t(layout_.ranks()), false).first->second;
        if (done[std::size_t(position)]) continue;
        const std::vector<int> in_order = ranks_of(layout_, position, c.name);
        std::vector<int> ring = in_order;
        std::sort(ring.begin(), ring.end());
        for (std::size_t i = 0; i < ring.size(); ++i) {
          const int ring_position = inverse_[std::size_t(ring[i])];
          done[std::size_t(ring_position)] = true;
          for (const CommunicatorTraffic& of_rank : plan_of(ring_position).traffic)
            if (of_rank.name == c.name) pass(of_rank, ring_position, in_order, ring, i);
        }
      }
    for (const auto& [key, bytes] : lines_) traffic_.lines.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), bytes});
    return std::move(traffic_);
  }

 private:
  // Plan of the same position in the first data-parallel replica, which does the same work.
  const RankPlan& plan_of(int position) const {
    return *plans_.at(layout_.position_at([&](Axis a) { return a == Axis::data ? 0 : layout_.coordinate(position, a); }));
  }

  void pass(const CommunicatorTraffic& c, int position, const std::vector<int>& in_order, const std::vector<int>& ring, std::size_t place) {
    const double n = double(ring.size());
    const int rank = ring[place], next = ring[(place + 1) % ring.size()];
    for (const TrafficCount::Line& line : c.count.lines()) {
      const double bytes = double(line.traffic.bytes);
      const auto send = [&](int to, double part) { add(c.name, line.operation, rank, to, part * bytes); };
      switch (line.operation) {
        case Operation::all_reduce: send(next, 2 * (n - 1) / n); break;
        case Operation::reduce_scatter:
        case Operation::broadcast: send(next, (n - 1) / n); break;
        case Operation::all_gather: send(next, n - 1); break;
        case Operation::shift: send(next, 1); break;
        case Operation::all_to_all:
          for (const int other : ring)
            if (other != rank) send(other, 1 / n);
          break;
        case Operation::send:
          if (c.name != Axes(Axis::pipeline).text()) send(next, 1);
          else
            for (const auto& [peer, part] : peers_.at(plan_of(position).position)) send(in_order.at(std::size_t(peer)), part);
          break;
        case Operation::receive: break;  // a receive is counted with its send
      }
    }
  }

  void add(const std::string& communicator, Operation operation, int from, int to, double bytes) {
    if (bytes == 0) return;
    const LinkClass link = link_between(from, to, cluster_);
    lines_[{link, communicator, operation}] += bytes;
    const std::size_t cell = std::size_t(from / traffic_.block) * std::size_t(traffic_.blocks) + std::size_t(to / traffic_.block);
    traffic_.bytes[cell] += bytes;
    traffic_.by_link[std::size_t(link)][cell] += bytes;
  }

  const Layout& layout_;
  const Cluster& cluster_;
  std::vector<int> inverse_;  // inverse permutation: position of each rank
  std::map<int, const RankPlan*> plans_;
  std::map<int, std::map<int, double>> peers_;  // by position of the plan: fraction of pipeline sends by peer
  std::map<std::tuple<LinkClass, std::string, Operation>, double> lines_;
  LinkTraffic traffic_;
};

}  // namespace

LinkClass link_between(int rank, int other, const Cluster& cluster) {
  const GroupPlacement p = placement_of({rank, other}, cluster);
  return p.islands > 1 ? LinkClass::islands : p.nodes > 1 ? LinkClass::network : LinkClass::node;
}

double LinkTraffic::of(LinkClass link) const {
  return std::accumulate(lines.begin(), lines.end(), 0.0, [&](double sum, const Line& l) { return sum + (l.link == link ? l.bytes : 0); });
}

double LinkTraffic::all() const {
  return std::accumulate(lines.begin(), lines.end(), 0.0, [](double sum, const Line& l) { return sum + l.bytes; });
}

LinkTraffic link_traffic(const std::vector<RankPlan>& plans, const EngineConfig& config, const Layout& layout, const Cluster& cluster,
                         int most_blocks) {
  return TrafficWalk(plans, config, layout, cluster, most_blocks).all();
}

}  // namespace gyr
