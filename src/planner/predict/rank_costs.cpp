// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/predict/rank_costs.hpp"

#include <algorithm>

#include "src/planner/machine/collective.hpp"

namespace gyr {

namespace {

std::vector<std::pair<int, TrafficCount::Line>> transfers_of(const std::vector<TrafficCount>& traffic) {
  std::vector<std::pair<int, TrafficCount::Line>> transfers;
  for (std::size_t c = 0; c < traffic.size(); ++c)
    for (const TrafficCount::Line& line : traffic[c].lines())
      if (line.traffic.calls != 0) transfers.emplace_back(int(c), line);
  return transfers;
}

Traffic sent(const std::vector<TrafficCount>& traffic) {
  Traffic sum;
  for (const TrafficCount& c : traffic) sum.calls += c.of(Operation::send).calls, sum.bytes += c.of(Operation::send).bytes;
  return sum;
}

// Work and traffic of a step outside the tasks of its program: the totals minus those of the tasks.
TaskCount rest_of(const RankPlan& plan) {
  TaskCount rest;
  rest.launches = plan.launches;
  for (const CommunicatorTraffic& c : plan.traffic) rest.traffic.push_back(c.count);
  std::vector<Index> times(plan.tasks.counts.size());
  for (const int count : plan.tasks.of_task) ++times[count];
  for (std::size_t i = 0; i < times.size(); ++i) {
    const TaskCount& task = plan.tasks.counts[i];
    // launches were counted once per distinct task, however often the task is done
    for (const auto& [shape, count] : task.launches) rest.launches[shape].calls -= count.calls;
    for (std::size_t c = 0; c < task.traffic.size(); ++c) rest.traffic[c].add(task.traffic[c], -times[i]);
  }
  return rest;
}

// Adds the host copies of a task that has `parts` parts.
void add_copies(CountedTasks::Count& count, const CopyCounts& copies, Index parts, const Cluster& cluster) {
  if (copies.calls == 0) return;
  count.copying = seconds_of_copies(copies.bytes, cluster);
  count.hides = compute_hiding_copies(count.compute, copies.calls, parts, cluster);
}

}  // namespace

TaskKey::TaskKey(const Task& t, int micros) {
  const Place place = t.micro < 0 ? Place::between : t.micro == micros - 1 ? Place::last : t.micro == 0 ? Place::first : Place::between;
  if (t.micro < 0) key_ = {t.op, t.bucket, 0, 0, {}, place};
  else key_ = {t.op, t.chunk, t.parts.first, t.parts.last, t.payload, place};
}

std::vector<OverlapCount> hidden_of(const TaskCount& count, DType precision, const Cluster& cluster, const Profile* profile) {
  std::vector<OverlapCount> hidden;
  for (const auto& [communicator, t] : count.hidden) {
    double overlapped = 0;
    for (const auto& [shape, calls] : t.overlapped) overlapped += calls * seconds_of(shape, precision, cluster, profile);
    hidden.push_back({communicator, t.operation, t.bytes, t.times, overlapped});
  }
  return hidden;
}

double seconds_hidden(const OverlapCount& hidden, double one, double overlapped, const Cluster& cluster) {
  return cluster.links_overlap ? double(hidden.times) * std::min(one, overlapped) : 0;
}

CountedTasks::CountedTasks(const StageRun& run, const Cluster& cluster, const Profile* profile)
    : step({.op = Op::step}, run.program.shape.micros), buckets(run.plan.buckets) {
  const RankPlan& plan = run.plan;
  const std::vector<Task>& tasks = run.program.tasks;
  for (const CommunicatorTraffic& c : plan.traffic) communicators.push_back(c.name);
  const auto end = std::find_if(tasks.begin(), tasks.end(), [](const Task& t) { return t.op == Op::step; });
  ensure(std::size_t(end - tasks.begin()) == plan.tasks.of_task.size(), "a program has {} tasks before the optimizer step, but {} were counted",
         end - tasks.begin(), plan.tasks.of_task.size());
  const auto compute_of = [&](const LaunchCounts& launches) { return seconds_of(launches, run.precision, cluster, profile); };
  for (auto task = tasks.begin(); task != end; ++task) {
    const auto [known, fresh] = counts.try_emplace(TaskKey(*task, run.program.shape.micros));
    if (!fresh) continue;
    const TaskCount& count = plan.tasks.counts.at(plan.tasks.of_task.at(std::size_t(task - tasks.begin())));
    known->second.compute = compute_of(count.launches);
    add_copies(known->second, copies_of(count.launches), task->parts.size(), cluster);
    if (task->op == Op::send) known->second.message = sent(count.traffic);
    else known->second.transfers = transfers_of(count.traffic);
    known->second.hidden = hidden_of(count, run.precision, cluster, profile);
  }
  const TaskCount remaining = rest_of(plan);
  rest = {compute_of(remaining.launches), 0, 0, {}, transfers_of(remaining.traffic)};
  for (auto task = end; task != tasks.end(); ++task)
    if (task->op == Op::gather) gathers.emplace_back(*task, run.program.shape.micros);
}

RankCosts::RankCosts(const CountedTasks& tasks, const Layout& layout, int position, const Cluster& cluster)
    : buckets_(tasks.buckets), pipeline_(ranks_of(layout, position, Axes(Axis::pipeline).text())), local_rank_(layout.rank_at(position)),
      cluster_(cluster) {
  std::vector<std::optional<GroupPlacement>> placements(tasks.communicators.size());  // placement of each communicator, filled on first use
  const auto placement = [&](int c) -> const GroupPlacement& {
    std::optional<GroupPlacement>& known = placements[std::size_t(c)];
    if (!known) known = placement_of(ranks_of(layout, position, tasks.communicators[std::size_t(c)]), cluster);
    return *known;
  };
  const auto cost = [&](const CountedTasks::Count& count) {
    TaskCost cost{count.compute, 0, count.copies(), count.message};
    for (const auto& [c, line] : count.transfers) cost.transfer += gyr::seconds_of(line.operation, line.traffic, placement(c), cluster);
    for (const OverlapCount& h : count.hidden)
      cost.transfer -= seconds_hidden(h, gyr::seconds_of(h.operation, {1, h.bytes}, placement(h.communicator), cluster), h.overlapped, cluster);
    return cost;
  };
  for (const auto& [key, count] : tasks.counts) costs_.emplace(key, cost(count));
  // Nearly all communication outside tasks is the weight gathers after the optimizer step, so it is distributed over
  // them.
  TaskCost rest = cost(tasks.rest);
  for (const TaskKey& gather : tasks.gathers) costs_[gather] = {0, rest.transfer / double(tasks.gathers.size())};
  if (!tasks.gathers.empty()) rest.transfer = 0;
  costs_[tasks.step] = rest;
}

void RankCosts::join(const RankCosts& other) {
  for (const auto& [key, cost] : other.costs_)
    if (TaskCost& mine = costs_[key]; cost.seconds() > mine.seconds()) mine = cost;
}

const TaskCost& RankCosts::cost_of(const Task& task, int micros) const {
  const auto found = costs_.find(TaskKey(task, micros));
  ensure(found != costs_.end(), "no cost is known for the task '{}' of chunk {}, micro-batch {}", name_of(task.op), task.chunk, task.micro);
  return found->second;
}

TaskTimes RankCosts::times_of(const Program& program) const {
  TaskTimes times{{}, buckets_, cluster_.links_overlap};
  times.seconds.reserve(program.tasks.size());
  std::map<int, GroupPlacement> ways;  // by pipeline peer: placement of the two ranks
  for (const Task& task : program.tasks) {
    if (task.op == Op::receive) {
      times.seconds.push_back(0);
      continue;
    }
    const TaskCost& cost = cost_of(task, program.shape.micros);
    if (task.op != Op::send) {
      times.seconds.push_back(cost.seconds());
      continue;
    }
    const auto [way, fresh] = ways.try_emplace(task.peer);
    if (fresh) way->second = placement_of({local_rank_, pipeline_.at(std::size_t(task.peer))}, cluster_);
    times.seconds.push_back(gyr::seconds_of(Operation::send, cost.message, way->second, cluster_));
  }
  return times;
}

TaskCost RankCosts::sum_of(const Program& program) const {
  TaskCost sum;
  for (const Task& task : program.tasks) {
    // these tasks overlap with computation
    if (task.op == Op::send || task.op == Op::receive || task.op == Op::reduce || task.op == Op::gather) continue;
    const TaskCost& cost = cost_of(task, program.shape.micros);
    sum.compute += cost.compute, sum.transfer += cost.transfer, sum.copies += cost.copies;
  }
  return sum;
}

}  // namespace gyr
