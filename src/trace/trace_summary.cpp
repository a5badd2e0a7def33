// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/trace_summary.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Lower median of the values; 0 for an empty list.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A message between pipeline stages, as opposed to a collective over them.
bool of_neighbour(const TracedWait& w) { return w.communicator == "pipeline" && (w.operation == "send" || w.operation == "receive"); }

template <class Timed>
std::vector<Interval> times_of(const std::vector<Timed>& all) {
  std::vector<Interval> times;
  for (const Timed& t : all) times.push_back(t.time);
  return times;
}

using ByMicro = std::map<std::pair<Index, Index>, double>;  // time by chunk and micro-batch

// Times of one rank in one file.
class RankTimes {
 public:
  explicit RankTimes(const TracedRank& rank)
      : rank_(rank), steps_(rank.steps), waits_(Intervals(times_of(rank.waits)).in(steps_)), tasks_(Intervals(times_of(rank.tasks)).in(steps_)) {}

  // Adds the times of this file, weighted by `part`.
  void add_to(RankSummary& sum, double part) const {
    const double step = steps_.total(), busy = tasks_.total() - tasks_.in(waits_).total();
    const Intervals transfers = Intervals(rank_.transfers).in(steps_);
    sum.step += part * step, sum.busy += part * busy;
    sum.rest += part * (step - busy - waits_.total());
    sum.hidden += part * (transfers.total() - transfers.in(waits_).total());
    each_wait([&](const TracedWait& w, double time) { (of_neighbour(w) ? sum.bubble : sum.exposed[w.communicator]) += part * time; });
  }
  // Time without waiting by chunk and micro-batch, summed over all tasks whose name begins with `name`.
  ByMicro by_micro(const std::string& name) const {
    ByMicro times;
    for (const TracedTask& t : rank_.tasks)
      if (t.micro >= 0 && t.name.starts_with(name)) times[{t.chunk, t.micro}] += t.time.end - t.time.begin - waits_.total_in(t.time);
    return times;
  }

 private:
  // Calls visit(wait, time), where `time` is the length of the wait in microseconds. If two waits overlap, which should
  // not happen, the overlap counts for the first.
  template <class Visit>
  void each_wait(Visit&& visit) const {
    std::vector<const TracedWait*> waits;
    for (const TracedWait& w : rank_.waits) waits.push_back(&w);
    std::sort(waits.begin(), waits.end(), [](const TracedWait* a, const TracedWait* b) { return a->time.begin < b->time.begin; });
    double end = 0;
    for (const TracedWait* w : waits) {
      visit(*w, steps_.total_in({std::max(end, w->time.begin), w->time.end}));
      end = std::max(end, w->time.end);
    }
  }

  const TracedRank& rank_;
  const Intervals steps_, waits_, tasks_;
};

constexpr double microsecond = 1e-6;

std::map<Index, double> medians(const std::vector<ByMicro>& files) {
  std::map<Index, std::vector<double>> times;
  for (const ByMicro& file : files)
    for (const auto& [at, time] : file) times[at.first].push_back(microsecond * time);
  std::map<Index, double> by_chunk;
  for (const auto& [chunk, all] : times) by_chunk[chunk] = median(all);
  return by_chunk;
}

RankSummary rank_summary(const std::vector<TraceFile>& files, Index number) {
  RankSummary sum;
  std::vector<ByMicro> forwards, backwards;
  for (const TraceFile& file : files) {
    const TracedRank& rank = file.ranks.at(number);
    const RankTimes times(rank);
    times.add_to(sum, microsecond / double(files.size()));
    forwards.push_back(times.by_micro("forward")), backwards.push_back(times.by_micro("backward"));
    sum.name = rank.name, sum.host = rank.host, sum.stage = rank.stage, sum.team = rank.team;
  }
  sum.rank = number;
  sum.forward = medians(forwards), sum.backward = medians(backwards);
  return sum;
}

// Each rank's time over the median of the ranks it is compared with.
std::vector<double> relative(const std::vector<RankSummary>& ranks, const std::vector<double>& seconds) {
  const auto place = [&](std::size_t i) { return std::pair(ranks[i].team, ranks[i].stage); };
  std::map<std::pair<Index, Index>, std::vector<double>> of_stage;
  std::map<Index, std::vector<double>> of_team;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (seconds[i] > 0) of_stage[place(i)].push_back(seconds[i]), of_team[ranks[i].team].push_back(seconds[i]);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& neighbours = of_stage[place(i)];
    ratios.push_back(seconds[i] > 0 ? seconds[i] / median(neighbours.size() > 1 ? neighbours : of_team[ranks[i].team]) : 0);
  }
  return ratios;
}

}  // namespace

std::vector<RankSummary> summary_of(const std::vector<TraceFile>& files) {
  std::vector<RankSummary> all;
  for (const auto& [number, rank] : files.front().ranks) all.push_back(rank_summary(files, number));
  return all;
}

std::vector<Comparison> comparisons_of(const std::vector<RankSummary>& ranks) {
  std::vector<Comparison> all;
  const auto add = [&](const std::string& what, const auto& seconds_of) {
    Comparison c{what, {}, {}};
    for (const RankSummary& r : ranks) c.seconds.push_back(seconds_of(r));
    c.relative = relative(ranks, c.seconds);
    all.push_back(std::move(c));
  };
  const auto by_chunk = [&](const std::string& what, std::map<Index, double> RankSummary::*times) {
    std::set<Index> chunks;
    for (const RankSummary& r : ranks)
      for (const auto& [chunk, time] : r.*times) chunks.insert(chunk);
    for (const Index chunk : chunks)
      add(chunks.size() > 1 ? fmt::format("{} {}", what, chunk) : what, [&](const RankSummary& r) {
        const auto found = (r.*times).find(chunk);
        return found == (r.*times).end() ? 0.0 : found->second;
      });
  };
  by_chunk("forward", &RankSummary::forward);
  by_chunk("backward", &RankSummary::backward);
  add("work", [](const RankSummary& r) { return r.work(); });
  return all;
}

}  // namespace gyr
