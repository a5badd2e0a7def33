// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/plan_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "modules/cost/flops.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/search_report.hpp"
#include "src/config/generation_ranks.hpp"
#include "src/page/page.hpp"
#include "src/plan_page_html.hpp"
#include "src/planner/predict/memory_curve.hpp"
#include "src/report/build_facts.hpp"

namespace gyr {

namespace {

enum class Kind { forward, backward, backward_input, backward_weights, step, clear, messages, buckets, peers, besides, send, reduce, gather };
constexpr std::array<const char*, 13> kind_names{"forward",
                                                 "backward",
                                                 "backward (input gradients)",
                                                 "backward (weight gradients)",
                                                 "optimizer",
                                                 "zero gradients",
                                                 "wait for a message",
                                                 "wait for gradient reduction or weight all-gather",
                                                 "wait for other stages",
                                                 "fixed cost per step",
                                                 "send",
                                                 "reduce gradients of a bucket",
                                                 "all-gather weights of a bucket"};
constexpr Index most_tasks = 60000;  // maximum number of tasks on a page; with more, only some pipeline ranks are drawn
constexpr double units = 1e8;        // resolution of times on the page: number of equal time units in a step

Kind kind_of(Op op) {
  switch (op) {
    case Op::forward: return Kind::forward;
    case Op::backward: return Kind::backward;
    case Op::backward_input: return Kind::backward_input;
    case Op::backward_weights: return Kind::backward_weights;
    case Op::send: return Kind::send;
    case Op::clear: return Kind::clear;
    case Op::reduce: return Kind::reduce;
    case Op::gather: return Kind::gather;
    case Op::step:
    case Op::receive: break;
  }
  return Kind::step;
}

// Tasks of one rank as integers for the page, with times in units of `unit` seconds.
class Tasks {
 public:
  explicit Tasks(double unit) : unit_(unit) {}

  void add(Kind kind, int micro, int chunk, std::pair<Index, Index> more, double begin, double end) {
    const Index from = rounded(begin), to = rounded(end);
    for (const Index n : {Index(kind), Index(micro), Index(chunk), more.first, more.second, from - last_, to - from}) counts_.push_back(n);
    last_ = from;
  }
  // Adds a task and the waits before it. The waits follow one another and end where the task begins.
  void add(const Task& t, const TaskSpan& s) {
    double wait = s.begin - s.peer_wait - s.bucket_wait - s.message_wait;
    for (const auto& [kind, seconds] :
         {std::pair{Kind::messages, s.message_wait}, std::pair{Kind::buckets, s.bucket_wait}, std::pair{Kind::peers, s.peer_wait}})
      if (seconds > 0) add(kind, t.micro, t.chunk, {-1, -1}, wait, wait + seconds), wait += seconds;
    const std::pair<Index, Index> more = t.op == Op::send     ? std::pair<Index, Index>{t.peer, -1}
                                         : t.bucket >= 0      ? std::pair<Index, Index>{t.bucket, -1}
                                         : t.parts.size() > 0 ? std::pair<Index, Index>{t.parts.first, t.parts.last}
                                                              : std::pair<Index, Index>{-1, -1};
    add(kind_of(t.op), t.micro, t.chunk, more, s.begin, s.end);
  }
  Json json() { return std::move(counts_); }

 private:
  Index rounded(double seconds) const { return std::llround(seconds / unit_); }
  double unit_;
  Index last_ = 0;
  std::vector<Index> counts_;
};

// Pipeline ranks to draw: every n-th, the last one, the one that computes longest, and `wanted`.
std::vector<int> drawn_ranks(const StepTimeline& step, int wanted) {
  Index tasks = 0;
  for (const Program& p : step.programs) tasks += Index(p.tasks.size());
  const int ranks = int(step.programs.size()), stride = int((tasks + most_tasks - 1) / most_tasks);
  std::vector<int> drawn;
  for (int rank = 0; rank < ranks; ++rank)
    if (rank % std::max(1, stride) == 0 || rank == ranks - 1 || rank == step.longest || rank == wanted) drawn.push_back(rank);
  return drawn;
}

// Time at which this pipeline rank ends its optimizer step; other ranks may end later.
double end_of(const Program& program, const std::vector<TaskSpan>& spans) {
  const auto found = std::find_if(program.tasks.begin(), program.tasks.end(), [](const Task& t) { return t.op == Op::step; });
  return spans.at(std::size_t(found - program.tasks.begin())).end;
}

Json row_of(const StepTimeline& step, int rank, double unit) {
  const Program& program = step.programs[std::size_t(rank)];
  const std::vector<TaskSpan>& spans = step.walked.tasks[std::size_t(rank)];
  Tasks tasks(unit);
  for (std::size_t i = 0; i < program.tasks.size(); ++i)
    if (program.tasks[i].op != Op::receive) tasks.add(program.tasks[i], spans[i]);
  if (const double end = end_of(program, spans); end < step.walked.makespan) tasks.add(Kind::peers, -1, 0, {-1, -1}, end, step.walked.makespan);
  if (step.besides > 0) tasks.add(Kind::besides, -1, 0, {-1, -1}, step.walked.makespan, step.walked.makespan + step.besides);
  const Prediction& p = step.of_rank[std::size_t(rank)];
  return {{"stage", rank}, {"parts", {p.compute, p.transfers, p.copies, p.messages, p.buckets, p.rest, p.seconds}}, {"tasks", tasks.json()}};
}

Json memory_of(const RunPlan& plan, const StepTimeline& step, const Cluster& cluster, double unit) {
  const RankPlan& largest_rank = plan.largest_rank();
  const int rank = plan.layout.coordinate(largest_rank.position, Axis::pipeline);
  EngineConfig few = plan.config;
  few.micros = std::min(few.micros, 3);
  const std::vector<MemoryMoment> curve =
      memory_curve(*StageRuns().of(few, plan.layout, largest_rank.position), step.programs[std::size_t(rank)], step.walked.tasks[std::size_t(rank)]);
  Json begin = Json::array(), end = Json::array(), kept = Json::array(), during = Json::array(), micros = Json::array(), fixed = Json::array(),
       lines = Json::array();
  for (const MemoryMoment& m : curve) {
    begin.push_back(std::llround(m.begin / unit)), end.push_back(std::llround(m.end / unit));
    kept.push_back(m.kept), during.push_back(m.during), micros.push_back(m.micros);
  }
  for (const Memory category : {Memory::weights, Memory::gradients, Memory::optimizer})
    fixed.push_back({name_of(category), largest_rank.capacity.bytes(category)});
  for (const MemoryLine& line : largest_rank.memory) lines.push_back({name_of(line.category), line.bytes, line.what});
  return {{"position", largest_rank.position},
          {"stage", rank},
          {"begin", begin},
          {"end", end},
          {"kept", kept},
          {"during", during},
          {"micros", micros},
          {"fixed", fixed},
          {"live", largest_rank.capacity.live},
          {"planned", largest_rank.capacity.working()},
          {"total", largest_rank.capacity.total()},
          {"device", cluster.island_of(plan.layout.rank_at(largest_rank.position)).device.memory},
          {"lines", lines}};
}

Json traffic_of(const LinkTraffic& traffic, int ranks) {
  Json cells = Json::array();
  for (int from = 0; from < traffic.blocks; ++from)
    for (int to = 0; to < traffic.blocks; ++to)
      if (const std::size_t cell = std::size_t(from) * std::size_t(traffic.blocks) + std::size_t(to); traffic.bytes[cell] > 0)
        cells.push_back({from, to, traffic.by_link[0][cell], traffic.by_link[1][cell], traffic.by_link[2][cell]});
  return {{"block", traffic.block}, {"blocks", traffic.blocks},   {"ranks", ranks},       {"links", link_names},
          {"cells", cells},         {"rows", link_rows(traffic)}, {"all", traffic.all()}, {"explained", links_explained}};
}

// Exposed parts of a step: the time in which the rank that computes longest does nothing else. They add up to the step.
constexpr std::array<const char*, 5> part_names{"compute", "model-parallel comm", "host copies", "data-parallel comm", "bubble"};
Json parts_of(const Prediction& p) { return {p.compute, p.transfers, p.copies, p.buckets, bubble(p)}; }

// Calls of an iteration of policy training, and the bars of call_timeline(): call, iteration whose answers it writes or reads, begin, end.
Json iteration_of(const IterationTimes& times) {
  const CallTimeline timeline = call_timeline(times);
  Json calls = Json::array(), spans = Json::array();
  for (const PlannedCall& c : times.calls)
    calls.push_back({{"name", c.name},
                     {"ranks", c.mesh.text()},
                     {"seconds", c.seconds},
                     {"layout", c.layout ? c.layout->text() : ""},
                     {"bytes", c.bytes()},
                     {"tokens", c.tokens}});
  for (const CallSpan& s : timeline.spans) spans.push_back({s.call, s.answers, s.begin, s.end});
  return {{"seconds", times.seconds()},
          {"tokens", times.answers.answers() * times.answers.tokens},
          {"drawn", timeline.seconds},
          {"overlaps", times.overlaps},
          {"calls", calls},
          {"spans", spans}};
}

// Numbers at the top of the page. The training run is that of all calls of its iterations, if it has calls.
Json figures_of(const RunPlan& plan, const PredictedRun& predicted, const Cluster& cluster, double tokens) {
  const auto& [run, layout, config, further, list, generation, generators] = plan;
  const Prediction& p = predicted.longest();
  const double of_step = double(run.largest_batch() * run.train.seq_length), ranks = layout.ranks();
  const auto& times = predicted.iteration;
  if (tokens <= 0)
    tokens = times ? double(times->answers.answers() * times->answers.tokens * run.policy->iterations) : of_step * double(run.train.steps);
  return {{"seconds", p.seconds},
          {"tokens_of_step", of_step},
          {"mfu", utilisation(run, layout.ranks(), cluster, p.seconds)},
          {"peak", cluster.peak(layout.ranks(), config.precision) / ranks},
          {"tokens", tokens},
          {"watts", cluster.watts(ranks_of_run(run, layout))},
          {"parts", parts_of(p)}};
}

}  // namespace

Json plan_values(const RunPlan& plan, const PredictedRun& predicted, const Machine& machine, double tokens, const SearchResult* found) {
  const StepTimeline& step = predicted.step;
  const double unit = (step.walked.makespan + step.besides) / units;
  const int largest_rank = plan.layout.coordinate(plan.largest_rank().position, Axis::pipeline);
  Json rows = Json::array();
  for (const int rank : drawn_ranks(step, largest_rank)) rows.push_back(row_of(step, rank, unit));
  Json data{{"machine", machine.cluster.name},
            {"ranks", ranks_of_run(plan.run, plan.layout)},
            {"fits", bytes_if_fits(plan, machine.cluster).has_value()},
            {"parameters", parameter_count(plan.run.model)},
            {"version", version()},
            {"git", git_hash()},
            {"part_names", part_names},
            {"figures", figures_of(plan, predicted, machine.cluster, tokens)},
            {"source", source_text(machine)},
            {"not_predicted", not_predicted},
            {"facts", plan_facts(plan, false)},
            {"predicted", prediction_facts(plan, predicted, machine, tokens)},
            {"unit", unit},
            {"kinds", kind_names},
            {"step",
             {{"seconds", predicted.longest().seconds},
              {"walked", step.walked.makespan},
              {"left", step.left},
              {"besides", step.besides},
              {"micros", step.micros},
              {"micros_left", step.micros_left},
              {"ranks", step.programs.size()},
              {"chunks", step.programs.front().shape.chunks},
              {"longest", step.longest}}},
            {"rows", rows},
            {"memory", memory_of(plan, step, machine.cluster, unit)},
            {"traffic", traffic_of(predicted.traffic, plan.layout.ranks())}};
  if (predicted.iteration) data["iteration"] = iteration_of(*predicted.iteration);
  if (!found) return data;
  Json refused = Json::array();
  for (const auto& row : refused_rows(*found)) refused.push_back(row);
  data["ranking"] = {{"summary", search_summary(*found)},
                     {"titles", ranking_titles},
                     {"rows", ranking_rows(plan.run, plan.layout.ranks(), machine.cluster, *found)},
                     {"seconds", Json::array()},
                     {"refused", refused}};
  for (const FoundLayout& f : found->best) data["ranking"]["seconds"].push_back(parts_of(f.prediction));
  return data;
}

std::string plan_page(const RunPlan& plan, const PredictedRun& predicted, const Machine& machine, double tokens, const SearchResult* found) {
  return page_of(plan_page_html, plan_values(plan, predicted, machine, tokens, found));
}

}  // namespace gyr
