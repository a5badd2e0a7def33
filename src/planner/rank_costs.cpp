// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/rank_costs.hpp"

#include <algorithm>

#include "src/planner/collective.hpp"

namespace gyr {

namespace {

// Where the communicators of a plan stand, seen from a position.
std::vector<GroupPlacement> placements_of(const RankPlan& plan, const Layout& layout, int position, const Cluster& cluster) {
  std::vector<GroupPlacement> placements;
  for (const CommunicatorTraffic& c : plan.traffic) {
    const std::vector<int> ranks = ranks_of(layout, position, c.name);
    ensure(int(ranks.size()) == c.size, "communicator {} of {} ranks is taken for one of {}", c.name, c.size, ranks.size());
    placements.push_back(placement_of(ranks, cluster));
  }
  return placements;
}

double seconds_of(const std::vector<TrafficCount>& traffic, const std::vector<GroupPlacement>& placements, const Cluster& cluster) {
  double sum = 0;
  for (std::size_t c = 0; c < traffic.size(); ++c)
    for (const TrafficCount::Line& line : traffic[c].lines()) sum += gyr::seconds_of(line.operation, line.traffic, placements[c], cluster);
  return sum;
}

Traffic sent(const std::vector<TrafficCount>& traffic) {
  Traffic sum;
  for (const TrafficCount& c : traffic) sum.calls += c.of(Operation::send).calls, sum.bytes += c.of(Operation::send).bytes;
  return sum;
}

// What a step takes besides the tasks of its program.
TaskCount rest_of(const RankPlan& plan) {
  TaskCount rest;
  rest.launches = plan.launches;
  for (const CommunicatorTraffic& c : plan.traffic) rest.traffic.push_back(c.count);
  std::vector<Index> times(plan.tasks.counts.size());
  for (const int count : plan.tasks.of_task) ++times[count];
  for (std::size_t i = 0; i < times.size(); ++i) {
    const TaskCount& task = plan.tasks.counts[i];
    for (const auto& [shape, count] : task.launches) rest.launches[shape].calls -= count.calls;  // counted once, however often it is done
    for (std::size_t c = 0; c < task.traffic.size(); ++c) rest.traffic[c].add(task.traffic[c], -times[i]);
  }
  return rest;
}

}  // namespace

RankCosts::RankCosts(const RankPlan& plan, const EngineConfig& planned, const Layout& layout, int position, const Cluster& cluster,
                     const Profile* profile)
    : buckets_(plan.buckets), pipeline_(ranks_of(layout, position, Axes(Axis::pipeline).text())), own_(layout.rank_at(position)), cluster_(cluster) {
  const int rank = layout.coordinate(plan.position, Axis::pipeline);
  const Program program = compile(planned.schedule, pipeline_shape(layout, planned.micros), rank, plan.buckets);
  const std::vector<GroupPlacement> placements = placements_of(plan, layout, position, cluster);
  const auto step = std::find_if(program.tasks.begin(), program.tasks.end(), [](const Task& t) { return t.op == Op::step; });
  ensure(std::size_t(step - program.tasks.begin()) == plan.tasks.of_task.size(), "a program of {} tasks was counted as one of {}",
         step - program.tasks.begin(), plan.tasks.of_task.size());
  for (auto task = program.tasks.begin(); task != step; ++task) {
    const auto [known, fresh] = costs_.try_emplace(key_of(*task, planned.micros));
    if (!fresh) continue;
    const TaskCount& count = plan.tasks.counts.at(plan.tasks.of_task.at(std::size_t(task - program.tasks.begin())));
    known->second.compute = gyr::seconds_of(count.launches, planned.precision, cluster, profile);
    if (task->op == Op::send) known->second.message = sent(count.traffic);
    else known->second.transfer = seconds_of(count.traffic, placements, cluster);
  }
  const TaskCount rest = rest_of(plan);
  const double compute = gyr::seconds_of(rest.launches, planned.precision, cluster, profile),
               transfer = seconds_of(rest.traffic, placements, cluster);
  const Index gathers = std::count_if(step, program.tasks.end(), [](const Task& t) { return t.op == Op::gather; });
  // What is gathered behind the step is nearly all that it transfers.
  for (auto task = step; task != program.tasks.end(); ++task)
    costs_[key_of(*task, planned.micros)] =
        task->op == Op::step ? TaskCost{compute, gathers > 0 ? 0 : transfer} : TaskCost{0, transfer / double(gathers)};
}

RankCosts::Key RankCosts::key_of(const Task& t, int micros) {
  if (t.micro < 0) return {t.op, t.bucket, 0, 0, {}, Place::between};
  const Place place = t.micro == micros - 1 ? Place::last : t.micro == 0 ? Place::first : Place::between;
  return {t.op, t.chunk, t.parts.first, t.parts.last, t.payload, place};
}

void RankCosts::join(const RankCosts& other) {
  for (const auto& [key, cost] : other.costs_)
    if (TaskCost& mine = costs_[key]; cost.seconds() > mine.seconds()) mine = cost;
}

const TaskCost& RankCosts::cost_of(const Task& task, int micros) const {
  const auto found = costs_.find(key_of(task, micros));
  ensure(found != costs_.end(), "nothing is known of what '{}' of chunk {}, micro-batch {} takes", name_of(task.op), task.chunk, task.micro);
  return found->second;
}

TaskTimes RankCosts::times_of(const Program& program) const {
  TaskTimes times{{}, buckets_};
  times.seconds.reserve(program.tasks.size());
  for (const Task& task : program.tasks) {
    if (task.op == Op::receive) {
      times.seconds.push_back(0);
      continue;
    }
    const TaskCost& cost = cost_of(task, program.shape.micros);
    times.seconds.push_back(task.op != Op::send ? cost.seconds()
                                                : gyr::seconds_of(Operation::send, cost.message,
                                                                  placement_of({own_, pipeline_.at(std::size_t(task.peer))}, cluster_), cluster_));
  }
  return times;
}

TaskCost RankCosts::sum_of(const Program& program) const {
  TaskCost sum;
  for (const Task& task : program.tasks) {
    if (task.op == Op::send || task.op == Op::receive || task.op == Op::reduce || task.op == Op::gather) continue;  // beside computations
    const TaskCost& cost = cost_of(task, program.shape.micros);
    sum.compute += cost.compute, sum.transfer += cost.transfer;
  }
  return sum;
}

}  // namespace gyr
