// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/schedule.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <set>

#include "kernels/base/error.hpp"
#include "regression/support/testing.hpp"
#include "src/parallel/simulator.hpp"

namespace gyr::schedule_suite {
namespace {

struct Named {
  const char* name;
  Schedule schedule;
  bool chunks;  // supports several chunks per rank (virtual pipeline stages)
};
const std::vector<Named> schedules{{"all_forward_all_backward", all_forward_all_backward, false},
                                   {"one_f_one_b", one_f_one_b, false},
                                   {"interleaved", interleaved, true},
                                   {"zero_bubble", zero_bubble, false}};

std::vector<Program> programs(Schedule schedule, const PipelineShape& shape, const BucketPlan& parts = {}) {
  std::vector<Program> all;
  for (int rank = 0; rank < shape.ranks; ++rank) all.push_back(compile(schedule, shape, rank, parts));
  return all;
}

// Calls body for every schedule and every pipeline of up to 8 ranks and 16 micro-batches that the schedule supports.
void for_all(const std::function<void(const Named&, const PipelineShape&)>& body) {
  for (const Named& named : schedules)
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 16; ++m)
        for (int v = 1; v <= (named.chunks && p > 1 ? 4 : 1); ++v) {
          SCOPED_TRACE(fmt::format("{} p {} v {} m {}", named.name, p, v, m));
          body(named, {p, v, m});
          if (::testing::Test::HasFailure()) return;
        }
}

bool is_computation(Op op) { return op == Op::forward || op == Op::backward || op == Op::backward_input || op == Op::backward_weights; }

TEST(schedule, each_chunk_runs_each_micro_batch_once) {
  for_all([](const Named& named, const PipelineShape& shape) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const std::vector<PipelineStep> list = named.schedule(shape, rank);
      std::map<std::pair<int, int>, std::vector<Op>> seen;
      for (const PipelineStep& pipeline_step : list) seen[{pipeline_step.chunk, pipeline_step.micro}].push_back(pipeline_step.op);
      ASSERT_EQ(int(seen.size()), shape.chunks * shape.micros);
      for (const auto& [where, ops] : seen) {
        const bool split = ops.size() == 3;
        EXPECT_EQ(ops,
                  split ? (std::vector<Op>{Op::forward, Op::backward_input, Op::backward_weights}) : (std::vector<Op>{Op::forward, Op::backward}));
      }
    }
  });
}

// A program contains the computations of its schedule, in order, and the communication that they need.
TEST(schedule, program_computes_the_tasks_of_its_schedule) {
  for_all([](const Named& named, const PipelineShape& shape) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      std::vector<PipelineStep> computed;
      for (const Task& t : compile(named.schedule, shape, rank).tasks)
        if (is_computation(t.op)) computed.push_back({t.op, t.chunk, t.micro});
      EXPECT_EQ(computed, named.schedule(shape, rank));
    }
  });
}

// simulate() refuses deadlocks, even those that occur only if a send waits for its receiver. It also refuses messages
// that are received in another order than they were sent.
TEST(schedule, programs_do_not_deadlock_and_tags_are_unique) {
  for_all([](const Named& named, const PipelineShape& shape) {
    const auto all = programs(named.schedule, shape);
    EXPECT_NO_THROW(simulate(all, {}));
    std::set<std::tuple<int, int, int>> sent, received;  // (sender, receiver, tag) of each message
    int messages = 0;
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (const Task& t : all[rank].tasks) {
        const bool fresh = t.op == Op::send      ? sent.insert({rank, t.peer, t.tag}).second
                           : t.op == Op::receive ? received.insert({t.peer, rank, t.tag}).second
                                                 : true;
        EXPECT_TRUE(fresh) << "rank " << rank << " tag " << t.tag;
        messages += t.op == Op::send;
      }
    EXPECT_EQ(sent, received);
    EXPECT_EQ(messages, 2 * shape.micros * (shape.stages() - 1));
  });
}

// A slot holds the data of one micro-batch from its first task to its last. No other micro-batch uses it in between.
TEST(schedule, slot_is_reused_only_after_it_is_free) {
  for_all([](const Named& named, const PipelineShape& shape) {
    BucketPlan parts{std::vector<int>(shape.chunks, 2), {}, std::vector<bool>(2 * shape.chunks, false)};
    for (int part = 2 * shape.chunks; part-- > 0;) parts.buckets.push_back({part});
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const Program program = compile(named.schedule, shape, rank, parts);
      std::map<std::pair<int, int>, int> holder;
      for (const Task& t : program.tasks) {
        if (t.op == Op::reduce || t.op == Op::step) continue;
        const auto [place, free] = holder.try_emplace({t.chunk, t.slot}, t.micro);
        EXPECT_EQ(place->second, t.micro) << to_text(program);
        EXPECT_TRUE(!free || t.op == Op::forward || (t.op == Op::receive && t.payload == Payload::activations)) << to_text(program);
        EXPECT_LT(t.slot, program.slots[t.chunk]);
        if (t.last_use) holder.erase(place);
      }
      EXPECT_TRUE(holder.empty());
      for (int chunk = 0; chunk < shape.chunks; ++chunk) EXPECT_EQ(program.slots[chunk], in_flight(named.schedule(shape, rank), chunk));
    }
  });
}

TEST(schedule, bucket_is_reduced_when_its_gradients_are_complete) {
  for_all([](const Named& named, const PipelineShape& shape) {
    BucketPlan parts;
    for (int chunk = 0; chunk < shape.chunks; ++chunk) parts.parts.push_back(2 + chunk);
    const Index all = parts.of(shape.chunks - 1).last;
    for (Index part = 0; part < all; ++part) parts.buckets.push_back({int((all - 1 - part) / 3)});
    parts.kept_unsharded.assign(parts.buckets.front().front() + 1, false);
    const Program program = compile(named.schedule, shape, shape.ranks - 1, parts);
    std::vector<int> summands(all, 0);
    std::set<int> reduced;
    const bool split = std::any_of(program.tasks.begin(), program.tasks.end(), [](const Task& t) { return t.op == Op::backward_weights; });
    for (const Task& t : program.tasks) {
      if (t.op == (split ? Op::backward_weights : Op::backward))
        for (Index part = t.parts.first; part < t.parts.last; ++part) ++summands[parts.of(t.chunk).first + part];
      if (t.op != Op::reduce) continue;
      EXPECT_TRUE(reduced.insert(t.bucket).second);
      for (Index part = 0; part < all; ++part) {
        if (parts.buckets[part].front() != t.bucket) continue;
        EXPECT_EQ(summands[part], shape.micros);
      }
    }
    EXPECT_EQ(reduced.size(), parts.kept_unsharded.size());
    EXPECT_EQ(program.tasks.back().op, Op::step);
  });
}

// Random assignment of parts to buckets. With tied embeddings, the bucket of the embedding is also used by the head,
// and is kept unsharded.
BucketPlan bucket_plan(const PipelineShape& shape, int rank, Shard shard, std::mt19937& random) {
  BucketPlan plan;
  plan.shard = shard, plan.head = rank == shape.ranks - 1;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) plan.parts.push_back(1 + int(random() % 3) + plan.head);
  plan.buckets.resize(plan.of(shape.chunks - 1).last);
  for (auto part = plan.buckets.rbegin(); part != plan.buckets.rend(); ++part) {
    if (plan.kept_unsharded.empty() || random() % 2) plan.kept_unsharded.push_back(false);
    *part = {int(plan.kept_unsharded.size()) - 1};
  }
  if (random() % 2) {  // tied embeddings
    plan.kept_unsharded.push_back(true);
    if (rank == 0) plan.buckets.front() = {int(plan.kept_unsharded.size()) - 1};
    if (plan.head && plan.buckets.size() > 1) plan.buckets.back().push_back(int(plan.kept_unsharded.size()) - 1);
  }
  return plan;
}

// Models the weight and gradient buffers while a program runs. `complaint` is the first violation.
class Buffers {
 public:
  explicit Buffers(const BucketPlan& plan) : plan_(plan) {}
  std::string complaint;
  int gathers = 0, after_step = 0;

  void take(const Task& t) {
    if (t.op == Op::gather) gather(t);
    if (t.op == Op::clear) clear(t);
    if (t.op == Op::reduce) reduce(t);
    if (t.op == Op::step) stepped_ = true;
    if (t.op == Op::forward || t.op == Op::backward || t.op == Op::backward_input || t.op == Op::backward_weights) compute(t);
  }
  void end() {
    for (const int open : open_) complain(open < 0, "gradients remain in a buffer");
    complain(unreduced_.empty(), "some gradients are not reduced");
  }

 private:
  void complain(bool right, const char* what) {
    if (!right && complaint.empty()) complaint = what;
  }
  bool shares_buffers(int bucket) const { return !plan_.kept_unsharded[bucket]; }
  void gather(const Task& t) {
    ++gathers;
    after_step += stepped_;
    const bool sharded = plan_.shard == Shard::weights;
    complain((t.buffer >= 0) == (sharded && shares_buffers(t.bucket)), "a gather goes to the wrong buffer");
    complain(sharded != stepped_, "a gather happens at the wrong time");
    if (t.buffer < 0) unsharded_.insert(t.bucket);
    else holds_[t.buffer] = t.bucket;
  }
  void clear(const Task& t) {
    complain(plan_.shard >= Shard::gradients && shares_buffers(t.bucket) && open_[t.buffer] < 0, "a buffer in use is cleared");
    open_[t.buffer] = t.bucket;
  }
  void reduce(const Task& t) {
    if (t.buffer >= 0) complain(std::exchange(open_[t.buffer], -1) == t.bucket, "the reduced bucket is not in its buffer");
    complain(unreduced_.erase(t.bucket) == 1, "a bucket without gradients is reduced");
    complain(t.buffer >= 0 || reduced_.insert(t.bucket).second, "a bucket is reduced twice");
  }
  void compute(const Task& t) {
    for (Index i = t.parts.first; i < t.parts.last; ++i) {
      const Index part = plan_.of(t.chunk).first + i;
      const bool head = plan_.head && part == Index(plan_.buckets.size()) - 1, forward = t.op == Op::forward;
      for (const int bucket : plan_.buckets[part]) {
        if ((forward || !head) && plan_.shard == Shard::weights)
          complain(shares_buffers(bucket) ? holds_[0] == bucket || holds_[1] == bucket : unsharded_.count(bucket) == 1,
                   "a computation lacks gathered weights");
        if (forward != head) continue;
        if (plan_.shard >= Shard::gradients && shares_buffers(bucket)) complain(open_[0] == bucket || open_[1] == bucket, "gradients lack a buffer");
        unreduced_.insert(bucket);
      }
    }
  }

  const BucketPlan& plan_;
  std::array<int, 2> holds_{-1, -1}, open_{-1, -1};
  std::set<int> unsharded_, unreduced_, reduced_;
  bool stepped_ = false;
};

TEST(schedule, sharded_buckets_are_gathered_before_use_and_reduced) {
  std::mt19937 random(1);
  for_all([&](const Named& named, const PipelineShape& shape) {
    for (const Shard shard : {Shard::none, Shard::optimizer, Shard::gradients, Shard::weights})
      for (int rank = 0; rank < shape.ranks; ++rank) {
        const BucketPlan plan = bucket_plan(shape, rank, shard, random);
        const Program program = compile(named.schedule, shape, rank, plan);
        Buffers buffers(plan);
        for (const Task& t : program.tasks) buffers.take(t);
        buffers.end();
        ASSERT_EQ(buffers.complaint, "") << named.name << ", sharded " << name_of(shard) << "\n" << to_text(program);
        const bool after = shard == Shard::optimizer || shard == Shard::gradients;
        std::set<int> used;
        for (const auto& buckets : plan.buckets) used.insert(buckets.begin(), buckets.end());
        ASSERT_EQ(buffers.after_step, after ? int(used.size()) : 0) << to_text(program);
        ASSERT_EQ(buffers.gathers > 0, shard != Shard::none);
      }
  });
}

// The gather of a bucket starts at least one computation before the computation that needs it.
TEST(schedule, gather_of_next_weights_overlaps_computation) {
  for_all([](const Named& named, const PipelineShape& shape) {
    BucketPlan plan;
    plan.shard = Shard::weights;
    plan.parts.assign(shape.chunks, 3);
    for (int part = 3 * shape.chunks; part-- > 0;) plan.buckets.push_back({part}), plan.kept_unsharded.push_back(false);
    const Program program = compile(named.schedule, shape, 0, plan);
    int computed = 0;  // computations between the gather of a bucket and its use
    int late = 0;
    for (std::size_t i = 0; i < program.tasks.size(); ++i) {
      const Task& t = program.tasks[i];
      if (t.op != Op::forward && t.op != Op::backward && t.op != Op::backward_input && t.op != Op::backward_weights) continue;
      const int needed = plan.buckets[plan.of(t.chunk).first + t.parts.first].front();
      int at = int(i);  // index of the last gather of this bucket
      while (at >= 0 && !(program.tasks[at].op == Op::gather && program.tasks[at].bucket == needed)) --at;
      ASSERT_GE(at, 0);
      computed = 0;
      for (std::size_t k = at; k < i; ++k) computed += program.tasks[k].micro >= 0 && program.tasks[k].parts.size() > 0;
      late += computed == 0;
    }
    EXPECT_EQ(late, 1) << "only the first gather cannot overlap computation\n" << to_text(program);
  });
}

double makespan(Schedule schedule, const PipelineShape& shape) { return simulate(programs(schedule, shape), {}).makespan; }

// Makespan for forward 1 and backward 2 per rank: 3 m + 3 (p - 1) / v with m micro-batches, p ranks and v chunks per
// rank. With split backwards (ZB-H1) the bubble is p - 1.
TEST(schedule, makespan_matches_the_closed_form) {
  EXPECT_EQ(makespan(one_f_one_b, {4, 1, 8}), 33);
  EXPECT_EQ(makespan(one_f_one_b, {8, 1, 16}), 69);
  EXPECT_EQ(makespan(interleaved, {4, 2, 8}), 28.5);
  EXPECT_EQ(makespan(interleaved, {8, 2, 16}), 58.5);
  EXPECT_EQ(makespan(interleaved, {8, 4, 16}), 53.25);
  for_all([](const Named& named, const PipelineShape& shape) {
    if (named.chunks && shape.micros % shape.ranks != 0) return;
    const double bubble = named.schedule == zero_bubble ? 1 : 3.0 / shape.chunks;
    if (named.schedule == zero_bubble && shape.micros < shape.ranks) return;
    EXPECT_NEAR(makespan(named.schedule, shape), 3 * shape.micros + bubble * (shape.ranks - 1), 1e-9);
  });
}

// For any number of micro-batches, interleaved 1F1B takes no longer than 1F1B, and no less than the closed form for
// full groups.
TEST(schedule, interleaved_schedule_is_never_slower_than_1f1b) {
  for (int p = 2; p <= 8; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m = 1; m <= 24; ++m) {
        const double time = makespan(interleaved, {p, v, m});
        EXPECT_GE(time, 3.0 * m + 3.0 * (p - 1) / v - 1e-9) << "p " << p << " v " << v << " m " << m;
        EXPECT_LE(time, makespan(one_f_one_b, {p, 1, m}) + 1e-9) << "p " << p << " v " << v << " m " << m;
      }
}

TEST(schedule, idle_fraction_matches_the_simulation) {
  for_all([](const Named& named, const PipelineShape& shape) {
    const Simulation s = simulate(programs(named.schedule, shape), {});
    EXPECT_NEAR(bubble_fraction(named.schedule, shape), 1 - s.busy[0] / s.makespan, 1e-12);
  });
}

TEST(schedule, zero_bubble_is_faster_within_1f1b_memory) {
  for (int p = 2; p <= 8; ++p)
    for (int m = 1; m <= 24; ++m) {
      EXPECT_LT(makespan(zero_bubble, {p, 1, m}), makespan(one_f_one_b, {p, 1, m})) << "p " << p << " m " << m;
      for (int rank = 0; rank < p; ++rank)
        EXPECT_LE(in_flight(zero_bubble({p, 1, m}, rank)), in_flight(one_f_one_b({p, 1, m}, 0))) << "p " << p << " m " << m << " rank " << rank;
    }
}

// Measured idle fractions of a step (Qi et al., "Zero Bubble Pipeline Parallelism", 2024, table 5; GPT on A100) next to
// simulated ones. Forward, input gradients and weight gradients cost the same and transfers are free: then 1F1B and
// interleaved 1F1B agree within 0.03. Interleaved 1F1B has as many chunks per rank as layers per rank. Weight gradients
// cost less in practice, because norms and attention scores have none. With 0.6 of a forward for them, and 0.02 for a
// transfer, ZB-H1 agrees within 0.03 as well.
TEST(schedule, simulated_bubbles_match_published_measurements) {
  struct Row {
    int ranks, chunks, micros;
    double one_f_one_b, interleaved, split;
  };
  const auto idle = [](Schedule schedule, const PipelineShape& shape, const TaskCosts& costs) {
    return 1 - shape.micros * costs.compute() / simulate(programs(schedule, shape), costs).makespan;
  };
  fmt::print("measured and simulated bubbles: 1F1B, interleaved, ZB-H1\n");
  for (const Row& r : {Row{8, 3, 24, 0.2431, 0.1055, 0.1585}, Row{8, 4, 24, 0.2347, 0.0808, 0.1323}, Row{16, 3, 48, 0.2552, 0.1104, 0.1397},
                       Row{32, 2, 96, 0.2646, 0.1493, 0.1421}}) {
    const double plain = idle(one_f_one_b, {r.ranks, 1, r.micros}, {}), inter = idle(interleaved, {r.ranks, r.chunks, r.micros}, {});
    const double split = idle(zero_bubble, {r.ranks, 1, r.micros}, {1, 1, 0.6, 0.02});
    fmt::print("{:3} ranks {:3} micro-batches  {:.4f} {:.4f}  {:.4f} {:.4f}  {:.4f} {:.4f}\n", r.ranks, r.micros, r.one_f_one_b, plain, r.interleaved,
               inter, r.split, split);
    EXPECT_NEAR(plain, r.one_f_one_b, 0.03);
    EXPECT_NEAR(inter, r.interleaved, 0.03);
    EXPECT_NEAR(split, r.split, 0.03);
  }
}

TEST(schedule, micro_batches_in_flight_match_the_closed_form) {
  for_all([](const Named& named, const PipelineShape& shape) {
    const auto [p, v, m] = shape;
    for (int r = 0; r < p; ++r) {
      const std::vector<PipelineStep> list = named.schedule(shape, r);
      int held = 0;
      for (int chunk = 0; chunk < v; ++chunk) held += in_flight(list, chunk);
      const int expected = named.schedule == one_f_one_b                ? std::min(p - r, m)
                           : named.schedule == all_forward_all_backward ? m
                           : named.schedule == zero_bubble              ? std::min(p, m)
                                                                        : std::min(2 * (p - r - 1) + (v - 1) * p + 1, m * v);
      // The chunks of a rank do not all reach their maximum at the same time.
      if (named.chunks && m % p != 0) EXPECT_LE(held, m * v);
      else EXPECT_TRUE(held == expected || (v > 1 && held > expected)) << "rank " << r << " holds " << held << ", expected " << expected;
    }
  });
}

std::string complaint_about(const std::vector<Program>& all) {
  try {
    simulate(all, {});
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// Moves the send of the only micro-batch after its backward.
void send_late(Program& program) {
  const auto send =
      std::find_if(program.tasks.begin(), program.tasks.end(), [](const Task& t) { return t.op == Op::send && t.payload == Payload::activations; });
  const auto backward = std::find_if(send, program.tasks.end(), [](const Task& t) { return t.op == Op::backward; });
  ASSERT_TRUE(backward != program.tasks.end());
  std::rotate(send, send + 1, backward + 1);
}

TEST(schedule, deadlock_error_names_the_cycle_of_tasks) {
  auto two = programs(one_f_one_b, {2, 1, 1});
  send_late(two[0]);
  EXPECT_EQ(
      complaint_about(two),
      "the schedule deadlocks: rank 0 at 'backward' of chunk 0, micro-batch 0 waits for rank 1 at 'forward' of chunk 0, micro-batch 0 waits for "
      "rank 0 at 'backward' of chunk 0, micro-batch 0");
  auto three = programs(one_f_one_b, {3, 1, 1});  // rank 0 waits as well, but is not part of the cycle
  send_late(three[1]);
  EXPECT_EQ(
      complaint_about(three),
      "the schedule deadlocks: rank 1 at 'backward' of chunk 0, micro-batch 0 waits for rank 2 at 'forward' of chunk 0, micro-batch 0 waits for "
      "rank 1 at 'backward' of chunk 0, micro-batch 0");
}

TEST(schedule, missing_send_is_reported_as_deadlock) {
  auto all = programs(one_f_one_b, {2, 1, 1});
  all[0].tasks.clear();
  EXPECT_EQ(complaint_about(all), "the schedule deadlocks: rank 1 at 'forward' of chunk 0, micro-batch 0 waits for rank 0 at its end");
}

TEST(schedule, reordered_messages_are_refused) {
  auto all = programs(all_forward_all_backward, {2, 1, 2});
  std::vector<Task*> sends;
  for (Task& t : all[0].tasks)
    if (t.op == Op::send) sends.push_back(&t);
  std::swap(sends[0]->tag, sends[1]->tag);
  EXPECT_THROW(simulate(all, {}), Error);
}

}  // namespace
}  // namespace gyr::schedule_suite
