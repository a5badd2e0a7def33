// SPDX-License-Identifier: BSD-3-Clause
// The HTML page of a plan agrees with the plan: each task is drawn once, rows add up to the step time, memory reaches
// the planned peak, and the bytes are those handed to communicators. It counts iterations of policy training.
#include <cmath>
#include <map>
#include <numeric>

#include "regression/planner/random_cluster.hpp"
#include "regression/planner/random_run.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/commands/plan_page.hpp"
#include "src/commands/plan_report.hpp"
#include "src/deck/deck.hpp"
#include "src/planner/predict/memory_curve.hpp"
#include "src/train/policy_generator.hpp"

namespace gyr::testing::plan_page_suite {
namespace {

struct Planned {
  Planned(Dice& dice, const Drawn& d) : plan(d.run, d.layout.ranks()), machine{random_cluster(dice), {}} {
    machine.cluster.nodes = 0;
    machine.cluster.name = "</script>";
  }
  RunPlan plan;
  Machine machine;
};

StepTimeline timeline_on(const Cluster& c, const Drawn& d) { return timeline_of(StagePlans(d.config, d.layout), d.config, d.layout, c); }

// Calls check(dice, drawn run, its plan) for `runs` random runs on random machines.
template <class F>
void each_planned(int runs, const F& check) {
  Dice dice(seed_of_run());
  for (int i = 0; i < runs; ++i) {
    const Drawn d = draw(dice);
    check(dice, d, Planned(dice, d));
  }
}

bool takes_compute_time(const Task& t) { return t.op != Op::send && t.op != Op::receive && t.op != Op::reduce && t.op != Op::gather; }

// Between its begin and its end a rank computes or waits, and the cause of each wait is known.
TEST(plan_page, tasks_and_waits_of_a_rank_are_contiguous) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 40; ++i) {
    const Drawn d = draw(dice);
    const Cluster c = random_cluster(dice);
    const StepTimeline step = timeline_on(c, d);
    const Simulation& s = step.walked;
    for (std::size_t rank = 0; rank < s.tasks.size(); ++rank) {
      const std::vector<Task>& tasks = step.programs[rank].tasks;
      double clock = 0, busy = 0, messages = 0, buckets = 0;
      for (std::size_t t = 0; t < tasks.size(); ++t) {
        const TaskSpan& span = s.tasks[rank][t];
        EXPECT_GE(span.end, span.begin);
        EXPECT_LE(span.end, s.makespan * (1 + 1e-12));
        if (!takes_compute_time(tasks[t])) continue;
        EXPECT_NEAR(span.begin - span.message_wait - span.bucket_wait - span.peer_wait, clock, 1e-9 * s.makespan) << to_text(step.programs[rank]);
        clock = span.end;
        busy += span.end - span.begin, messages += span.message_wait, buckets += span.bucket_wait;
      }
      EXPECT_NEAR(busy, s.busy[rank], 1e-9 * s.makespan);
      EXPECT_NEAR(messages, s.message_wait[rank], 1e-9 * s.makespan);
      EXPECT_NEAR(buckets, s.bucket_wait[rank], 1e-9 * s.makespan);
    }
    for (const Prediction& p : step.of_rank)
      EXPECT_NEAR((s.makespan + step.left + step.besides) / p.seconds, 1, 1e-9)
          << "simulated micro-batches, remaining ones and fixed costs add up to the step";
    EXPECT_EQ(predict(StagePlans(d.config, d.layout), d.config, d.layout, c).seconds, step.of_rank[std::size_t(step.longest)].seconds);
  }
}

// No computation begins before its input message has arrived.
TEST(plan_page, no_task_starts_before_its_message_arrives) {
  Dice dice(seed_of_run());
  int read = 0;
  for (int i = 0; i < 40; ++i) {
    const Drawn d = draw(dice);
    const StepTimeline step = timeline_on(random_cluster(dice), d);
    std::map<std::tuple<int, int, int, Payload>, double> sent;  // end of each send, by destination stage of the full model, micro-batch and payload
    const auto stage = [&](std::size_t rank, int chunk) { return step.programs[rank].shape.stage(int(rank), chunk); };
    for (std::size_t rank = 0; rank < step.programs.size(); ++rank)
      for (std::size_t t = 0; t < step.programs[rank].tasks.size(); ++t)
        if (const Task& task = step.programs[rank].tasks[t]; task.op == Op::send)
          sent[{stage(rank, task.chunk) + (task.payload == Payload::activations ? 1 : -1), task.micro, 0, task.payload}] =
              step.walked.tasks[rank][t].end;
    for (std::size_t rank = 0; rank < step.programs.size(); ++rank)
      for (std::size_t t = 0; t < step.programs[rank].tasks.size(); ++t) {
        const Task& task = step.programs[rank].tasks[t];
        if (task.op != Op::forward && task.op != Op::backward && task.op != Op::backward_input) continue;
        const auto message = sent.find({stage(rank, task.chunk), task.micro, 0, task.op == Op::forward ? Payload::activations : Payload::gradients});
        if (message == sent.end()) continue;
        EXPECT_GE(step.walked.tasks[rank][t].begin, message->second * (1 - 1e-12));
        ++read;
      }
  }
  EXPECT_GT(read, 500);
}

TEST(plan_page, rows_draw_every_task_once) {
  each_planned(40, [&](Dice&, const Drawn& d, const Planned& p) {
    const PredictedRun predicted(p.plan, p.machine);
    const StepTimeline& step = predicted.step;
    const Json values = plan_values(p.plan, predicted, p.machine, 0);
    const double unit = values["unit"], full = step.walked.makespan + step.besides;
    const std::vector<std::string> kinds = values["kinds"];
    const std::size_t in_flight = std::size_t(std::find(kinds.begin(), kinds.end(), "send") - kinds.begin());
    ASSERT_EQ(values["rows"].size(), step.programs.size());
    for (std::size_t rank = 0; rank < step.programs.size(); ++rank) {
      const std::vector<Index> tasks = values["rows"][rank]["tasks"];
      std::map<std::tuple<std::string, int, int>, int> drawn, listed;  // counts by kind, micro-batch and chunk
      double sum = 0;
      for (std::size_t t = 0; t < tasks.size(); t += 7) {
        EXPECT_GE(tasks[t + 6], 0);
        if (std::size_t(tasks[t]) < in_flight) sum += double(tasks[t + 6]) * unit;
        if (kinds.at(std::size_t(tasks[t])).find("wait") == std::string::npos && kinds[std::size_t(tasks[t])] != "fixed cost per step")
          ++drawn[{kinds[std::size_t(tasks[t])], int(tasks[t + 1]), int(tasks[t + 2])}];
      }
      const std::map<Op, std::string> names{{Op::forward, "forward"},
                                            {Op::backward, "backward"},
                                            {Op::backward_input, "backward (input gradients)"},
                                            {Op::backward_weights, "backward (weight gradients)"},
                                            {Op::send, "send"},
                                            {Op::clear, "zero gradients"},
                                            {Op::reduce, "reduce gradients of a bucket"},
                                            {Op::gather, "all-gather weights of a bucket"},
                                            {Op::step, "optimizer"}};
      for (const Task& t : step.programs[rank].tasks)
        if (t.op != Op::receive) ++listed[{names.at(t.op), t.micro, t.chunk}];
      EXPECT_EQ(drawn, listed);
      EXPECT_NEAR(sum / full, 1, 1e-4) << d.layout.text() << " rank " << rank;
    }
    const double printed = values["step"]["seconds"];
    const std::vector<double> parts = values["figures"]["parts"];
    EXPECT_NEAR(std::accumulate(parts.begin(), parts.end(), 0.0), printed, 1e-9 * printed);
    EXPECT_EQ(values["figures"]["seconds"], printed);
    Index bytes = 0, category_bytes = 0;
    for (const Json& line : values["memory"]["lines"]) bytes += line[1].get<Index>();
    for (const Memory category : {Memory::weights, Memory::gradients, Memory::optimizer, Memory::activations})
      category_bytes += p.plan.largest_rank().capacity.bytes(category);
    EXPECT_EQ(bytes, category_bytes);
    EXPECT_NEAR((double(values["step"]["walked"]) + double(values["step"]["left"]) + double(values["step"]["besides"])) / printed, 1, 1e-9);
    EXPECT_TRUE(values["predicted"][1][1].get<std::string>().starts_with(time_text(printed, 4) + ";"));
    const std::string page = plan_page(p.plan, predicted, p.machine, 0);
    EXPECT_EQ(page.find("</script>", page.find("id=\"numbers\"")), page.find("</script>\n<script>")) << "no text in the data ends the script element";
    EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg")) << "the page loads nothing from the network";
  });
}

TEST(plan_page, memory_reaches_the_planned_peak_and_ends_empty) {
  Dice dice(seed_of_run());
  int full = 0;
  for (int i = 0; i < 40; ++i) {
    const Drawn d = draw(dice);
    const Planned p(dice, d);
    const StepTimeline step = PredictedRun(p.plan, p.machine).step;
    for (const RankPlan& plan : p.plan.ranks) {
      EngineConfig few = d.config;
      few.micros = std::min(few.micros, 3);
      const std::size_t rank = std::size_t(d.layout.coordinate(plan.position, Axis::pipeline));
      const std::vector<MemoryMoment> curve =
          memory_curve(*StageRuns().of(few, d.layout, plan.position), step.programs[rank], step.walked.tasks[rank]);
      Index most = 0;
      double clock = 0;
      for (const MemoryMoment& m : curve) {
        EXPECT_GE(m.begin, clock * (1 - 1e-12));
        clock = m.end, most = std::max(most, m.during);
      }
      EXPECT_EQ(curve.back().kept, 0);
      EXPECT_EQ(curve.back().micros, 0);
      if (step.micros_left > 0) continue;
      EXPECT_EQ(most, plan.capacity.live) << d.layout.text();
      ++full;
    }
  }
  EXPECT_GT(full, 30);
}

// Bytes that ranks pass on follow from the bytes handed to communicators, and all of them appear in the links and in
// the matrix.
TEST(plan_page, link_traffic_matches_the_plan) {
  each_planned(40, [&](Dice& dice, const Drawn& d, const Planned& p) {
    const int most = dice.one_of<int>({2, 5, 100}), replicas = d.layout.size(Axis::data);
    const LinkTraffic traffic = link_traffic(p.plan.ranks, d.config, d.layout, p.machine.cluster, most);
    double passed = 0, sent = 0;
    for (const RankPlan& plan : p.plan.ranks)
      for (const CommunicatorTraffic& c : plan.traffic) {
        if (c.size == 1) continue;
        const double n = c.size;
        const auto bytes = [&](Operation op) { return double(c.count.of(op).bytes) * replicas; };
        passed += 2 * (n - 1) / n * bytes(Operation::all_reduce) + (n - 1) / n * (bytes(Operation::reduce_scatter) + bytes(Operation::broadcast)) +
                  (n - 1) * bytes(Operation::all_gather) + (n - 1) / n * bytes(Operation::all_to_all) + bytes(Operation::shift) +
                  bytes(Operation::send);
        if (c.name == "pipeline") sent += bytes(Operation::send);
      }
    EXPECT_NEAR(traffic.all(), passed, 1e-9 * passed) << d.layout.text();
    EXPECT_NEAR(std::accumulate(traffic.bytes.begin(), traffic.bytes.end(), 0.0), passed, 1e-9 * passed);
    for (std::size_t cell = 0; cell < traffic.bytes.size(); ++cell)
      EXPECT_NEAR(traffic.by_link[0][cell] + traffic.by_link[1][cell] + traffic.by_link[2][cell], traffic.bytes[cell], 1e-9 * passed);
    for (const LinkClass link : {LinkClass::node, LinkClass::network, LinkClass::islands}) {
      const std::vector<double>& bytes = traffic.by_link[std::size_t(link)];
      EXPECT_NEAR(std::accumulate(bytes.begin(), bytes.end(), 0.0), traffic.of(link), 1e-9 * passed);
    }
    EXPECT_NEAR(traffic.of(LinkClass::node) + traffic.of(LinkClass::network) + traffic.of(LinkClass::islands), passed, 1e-9 * passed);
    double of_pipeline = 0;
    for (const LinkTraffic::Line& line : traffic.lines)
      if (line.communicator == "pipeline") of_pipeline += line.bytes;
    EXPECT_NEAR(of_pipeline, sent, 1e-9 * sent);
    EXPECT_TRUE(traffic.blocks <= most || traffic.block <= p.machine.cluster.per_node);
    for (int a = 0; a < d.layout.ranks() && traffic.block == 1; ++a) EXPECT_EQ(traffic.bytes[std::size_t(a * traffic.blocks + a)], 0);
    Cluster one = p.machine.cluster;
    one.per_node = d.layout.ranks();
    const LinkTraffic inside = link_traffic(p.plan.ranks, d.config, d.layout, one, most);
    EXPECT_NEAR(inside.of(LinkClass::node), passed, 1e-9 * passed) << "all traffic stays on one node";
  });
}

// A run of two ranks that train. In half of the cases, further ranks only generate.
struct DrawnPlan {
  RunConfig run;
  int ranks = 2, generating = 0;
  Machine machine;
};

Cluster cluster_for_policies(Dice& dice) {
  Cluster c;
  c.name = "drawn", c.per_node = dice.one_of<int>({2, 4});
  c.device.memory = 1e12, c.device.memory_bandwidth = dice.real(1e9, 1e11), c.device.watts = dice.real(100, 900);
  c.device.fp64 = c.device.fp32 = c.device.bf16 = dice.real(1e9, 1e12);
  c.node = {dice.real(1e-7, 1e-5), dice.real(1e8, 1e10)}, c.network = {dice.real(1e-7, 1e-5), dice.real(1e7, 1e9)}, c.islands = c.network;
  return c;
}

DrawnPlan drawn_plan(Dice& dice, bool separate) {
  DrawnPlan d{.run = {}, .machine = {cluster_for_policies(dice), {}}};
  std::vector<std::string> overrides{fmt::format("rl.num_generations={}", dice.between(2, 3)), fmt::format("rl.iterations={}", dice.between(1, 50)),
                                     dice.coin() ? "parallel.tensor=2" : "parallel.pipeline=2"};
  if (separate) {
    const int tensor = dice.one_of<int>({1, 2}), pipeline = dice.one_of<int>({1, 2});
    d.generating = tensor * pipeline * dice.between(1, 2), d.ranks += d.generating;
    overrides.insert(overrides.end(),
                     {fmt::format("rl.generate.ranks=2-{}", d.ranks - 1), "rl.generate.separate=true", fmt::format("rl.generate.tensor={}", tensor),
                      fmt::format("rl.generate.pipeline={}", pipeline), fmt::format("rl.staleness={}", dice.between(0, 1))});
  }
  Deck deck = Deck::parse(
      "model: {pattern: P x 4, vocab_size: 64, hidden_size: 16, attention: {num_heads: 4, num_kv_heads: 2, head_dim: 4},\n"
      "        mamba: {num_heads: 4, head_dim: 8, state_size: 4}, mlp: {intermediate_size: 32}}\n"
      "train: {objective: policy, seq_length: 32, precision: fp32, micro_batch_size: 1}\n"
      "rl: {algorithm: rloo, prompts: 16, generate: {max_new_tokens: 8}, rewards: {short: {type: length, most: 3}}}\n",
      "test.yaml", overrides);
  d.run = read_run_config(deck);
  return d;
}

// Calls check(drawn plan, its run plan) for runs with and without ranks that only generate.
template <class F>
void each_plan(const F& check) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 16; ++i) {
    const DrawnPlan d = drawn_plan(dice, i % 2 == 1);
    check(d, RunPlan(d.run, d.ranks));
  }
}

TEST(plan_page, policy_counts_iterations_of_all_calls) {
  int overlaps = 0;
  each_plan([&](const DrawnPlan& d, const RunPlan& plan) {
    const PredictedRun predicted(plan, d.machine);
    const IterationTimes& times = *predicted.iteration;
    const Json values = plan_values(plan, predicted, d.machine, 0), iteration = values["iteration"];
    EXPECT_EQ(values["ranks"], d.ranks);
    EXPECT_EQ(values["figures"]["watts"], d.machine.cluster.watts(d.ranks));
    EXPECT_EQ(iteration["seconds"], times.seconds());
    const double tokens = values["figures"]["tokens"], of_iteration = iteration["tokens"];
    EXPECT_EQ(tokens / of_iteration, double(d.run.policy->iterations));
    std::string training;
    for (const auto& [name, text] : prediction_facts(plan, predicted, d.machine, 0))
      if (name == "training") training = text;
    const std::string days = fmt::format("{:.4g} days", tokens / of_iteration * times.seconds() / 86400);
    EXPECT_TRUE(training.starts_with(days)) << days << " or " << training;
    double drawn = 0, end = 0;
    for (const Json& span : iteration["spans"]) {
      const double seconds = double(span[3]) - double(span[2]);
      EXPECT_NEAR(seconds, double(iteration["calls"][std::size_t(span[0])]["seconds"]), 1e-9 * times.seconds());
      drawn += seconds, end = std::max(end, double(span[3]));
    }
    EXPECT_LE(end, double(iteration["drawn"]) * (1 + 1e-9));
    if (times.overlaps) ++overlaps;
    else EXPECT_NEAR(drawn, times.seconds(), 1e-9 * times.seconds());
    EXPECT_TRUE(values["fits"]);
  });
  EXPECT_GT(overlaps, 0);
}

TEST(plan_page, ranks_that_only_generate_have_memory_rows) {
  each_plan([&](const DrawnPlan& d, const RunPlan& plan) {
    const std::string report = plan_report(plan, ""), heading = "Only generate: ranks ";
    EXPECT_EQ(report.find(heading) != report.npos, d.generating > 0) << report;
    EXPECT_EQ(plan.generators.empty(), d.generating == 0);
    if (d.generating == 0) return;
    const GenerationPlace& place = *plan.generation;
    EXPECT_EQ(int(plan.generators.size()), d.run.policy->generation.tensor * d.run.policy->generation.pipeline);
    const GeneratorCapacity limits = generator_capacity(d.run, longest_prompt(d.run), place.layout);
    const Unit unit = byte_unit(double(plan.largest_rank().capacity.total()));
    for (int i = 0; i < d.generating; ++i) {
      const RankPlan& row = plan_at(plan.generators, place.layout, place.layout.position_of(i));
      const GeneratorBytes bytes = generation_bytes(d.run.model, place, limits, place.mesh.ranks[std::size_t(i)]);
      EXPECT_EQ(row.capacity.weights, bytes.weights);
      EXPECT_EQ(row.capacity.total(), bytes.weights + bytes.working);
      EXPECT_GE(bytes.weights, row.parameters * Index(sizeof(float)));
      EXPECT_NE(report.find(" " + unit(double(row.capacity.total())) + " ", report.find(heading)), report.npos) << report;
    }
  });
}

}  // namespace
}  // namespace gyr::testing::plan_page_suite
