// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/program.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

namespace gyr {

namespace {

bool is_backward(Op op) { return op == Op::backward || op == Op::backward_input || op == Op::backward_weights; }

// Last step of each micro-batch on a chunk, and last backward of each chunk.
class LastSteps {
 public:
  explicit LastSteps(const std::vector<PipelineStep>& pipeline_steps) {
    for (std::size_t i = 0; i < pipeline_steps.size(); ++i) {
      last_[{pipeline_steps[i].chunk, pipeline_steps[i].micro}] = i;
      if (is_backward(pipeline_steps[i].op)) last_backward_[pipeline_steps[i].chunk] = i;
    }
  }
  bool ends(const PipelineStep& pipeline_step, std::size_t i) const { return last_.at({pipeline_step.chunk, pipeline_step.micro}) == i; }
  // True if the gradients of the chunk's weights are complete after this step.
  bool completes(const PipelineStep& pipeline_step, std::size_t i) const {
    const auto found = last_backward_.find(pipeline_step.chunk);
    return found != last_backward_.end() && found->second == i;
  }

 private:
  std::map<std::pair<int, int>, std::size_t> last_;
  std::map<int, std::size_t> last_backward_;
};

// Slots of one chunk: a micro-batch takes the lowest free slot.
class Slots {
 public:
  int take(int micro) {
    const auto free = std::find(holder_.begin(), holder_.end(), -1);
    const int slot = int(free - holder_.begin());
    if (free == holder_.end()) holder_.push_back(micro);
    else *free = micro;
    return slot;
  }
  int of(int micro) const {
    const auto found = std::find(holder_.begin(), holder_.end(), micro);
    ensure(found != holder_.end(), "micro-batch {} has no forward before its backward", micro);
    return int(found - holder_.begin());
  }
  void give_back(int slot) { holder_[slot] = -1; }
  int count() const { return int(holder_.size()); }

 private:
  std::vector<int> holder_;  // by slot: index of the micro-batch in it; -1: free
};

class Compiler {
 public:
  Compiler(const PipelineShape& shape, int rank, const BucketPlan& plan)
      : shape_(shape), rank_(rank), plan_(plan), slots_(shape.chunks), incomplete_(plan.kept_unsharded.size()) {
    for (const auto& buckets : plan.buckets)
      for (const int bucket : buckets) ++incomplete_[bucket];
    program_.shape = shape;
  }

  Program compile(const std::vector<PipelineStep>& pipeline_steps) {
    const LastSteps lifetimes(pipeline_steps);
    bool steps = false;
    for (std::size_t i = 0; i < pipeline_steps.size(); ++i) {
      const PipelineStep& pipeline_step = pipeline_steps[i];
      const bool completes = !plan_.buckets.empty() && lifetimes.completes(pipeline_step, i);
      before(pipeline_step);
      compute(pipeline_step, completes);
      after(pipeline_step);
      if (lifetimes.ends(pipeline_step, i)) end(pipeline_step);
      steps = steps || completes;
    }
    if (steps) program_.tasks.push_back({Op::step});
    if (steps && (plan_.shard == Shard::optimizer || plan_.shard == Shard::gradients)) gather_all();
    for (const Slots& slots : slots_) program_.slots.push_back(slots.count());
    return std::move(program_);
  }

 private:
  Task task(const PipelineStep& pipeline_step, Span parts) {
    return {.op = pipeline_step.op,
            .chunk = pipeline_step.chunk,
            .micro = pipeline_step.micro,
            .slot = slots_[pipeline_step.chunk].of(pipeline_step.micro),
            .parts = parts};
  }

  // `needing_stage`: stage that needs the message first; part of the tag.
  void transfer(Op op, const PipelineStep& pipeline_step, Payload payload, int peer_stage, int needing_stage) {
    Task t = task(pipeline_step, {});
    t.op = op, t.payload = payload;
    t.peer = peer_stage % shape_.ranks;
    t.tag = int((2 * (std::int64_t(pipeline_step.micro) * shape_.stages() + needing_stage) + int(payload)) % message_tags);
    program_.tasks.push_back(t);
  }

  void before(const PipelineStep& pipeline_step) {
    const int stage = shape_.stage(rank_, pipeline_step.chunk);
    if (pipeline_step.op == Op::forward) slots_[pipeline_step.chunk].take(pipeline_step.micro);
    if (pipeline_step.op == Op::forward && stage > 0) transfer(Op::receive, pipeline_step, Payload::activations, stage - 1, stage);
    if ((pipeline_step.op == Op::backward || pipeline_step.op == Op::backward_input) && stage < shape_.stages() - 1)
      transfer(Op::receive, pipeline_step, Payload::gradients, stage + 1, stage);
  }

  void after(const PipelineStep& pipeline_step) {
    const int stage = shape_.stage(rank_, pipeline_step.chunk);
    if (pipeline_step.op == Op::forward && stage < shape_.stages() - 1) transfer(Op::send, pipeline_step, Payload::activations, stage + 1, stage + 1);
    if ((pipeline_step.op == Op::backward || pipeline_step.op == Op::backward_input) && stage > 0)
      transfer(Op::send, pipeline_step, Payload::gradients, stage - 1, stage - 1);
  }

  // True if a computation is split into one task per part, because reductions or gathers start or are awaited between
  // the parts.
  bool in_parts(const PipelineStep& pipeline_step, bool completes) {
    if (plan_.buckets.empty()) return false;
    if (pipeline_step.op != Op::forward) return completes || plan_.shard >= Shard::gradients;
    const bool writes = plan_.shard == Shard::gradients && plan_.head && pipeline_step.chunk == shape_.chunks - 1;
    return writes || plan_.shard == Shard::weights || (plan_.shard != Shard::none && awaited_.insert(pipeline_step.chunk).second);
  }

  void compute(const PipelineStep& pipeline_step, bool completes) {
    const Span parts = plan_.of(pipeline_step.chunk);
    if (!in_parts(pipeline_step, completes)) {
      program_.tasks.push_back(task(pipeline_step, {0, parts.size()}));
      return;
    }
    for (Index i = 0; i < parts.size(); ++i) {
      const Index part = pipeline_step.op == Op::forward ? i : parts.size() - 1 - i;
      program_.tasks.push_back(task(pipeline_step, {part, part + 1}));
      if (completes) complete(parts.first + part);
    }
  }

  void end(const PipelineStep& pipeline_step) {
    auto last = program_.tasks.rbegin();
    while (last->op == Op::reduce) ++last;
    last->last_use = true;
    slots_[pipeline_step.chunk].give_back(slots_[pipeline_step.chunk].of(pipeline_step.micro));
  }

  // Adds reductions of complete buckets. With ZeRO-2 and 3, with_reductions() adds those of buckets that share buffers
  // instead.
  void complete(Index part) {
    for (const int bucket : plan_.buckets[part])
      if (--incomplete_[bucket] == 0 && (plan_.shard < Shard::gradients || plan_.kept_unsharded[bucket]))
        program_.tasks.push_back({.op = Op::reduce, .bucket = bucket});
  }

  void gather_all() {
    std::set<int> gathered;
    std::vector<Task> gathers;
    for (const Task& t : program_.tasks)
      if (t.op == Op::forward)
        for (Index part = t.parts.first; part < t.parts.last; ++part)
          for (const int bucket : plan_.buckets[plan_.of(t.chunk).first + part])
            if (gathered.insert(bucket).second) gathers.push_back({.op = Op::gather, .bucket = bucket});
    program_.tasks.insert(program_.tasks.end(), gathers.begin(), gathers.end());
  }

  PipelineShape shape_;
  int rank_;
  const BucketPlan& plan_;
  std::vector<Slots> slots_;
  std::set<int> awaited_;        // indices of chunks whose first forward has been compiled
  std::vector<int> incomplete_;  // by bucket: number of parts whose gradients are incomplete
  Program program_;
};

// Adds the tasks that are needed because buckets share two buffers.
class BufferQueue {
 public:
  BufferQueue(const BucketPlan& plan, std::vector<Task> tasks) : plan_(plan), tasks_(std::move(tasks)) {}

  // Before a computation, gathers the bucket of weights that it needs, unless it is in a buffer, and the bucket that is
  // needed next.
  std::vector<Task> with_gathers() {
    std::vector<Task> all;
    std::array<int, 2> holds{-1, -1};
    std::set<int> unsharded;
    int present = 1;
    const auto gather = [&](int bucket, int buffer) {
      all.push_back({.op = Op::gather, .bucket = bucket, .buffer = buffer});
      holds[buffer] = bucket;
    };
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      for (const int bucket : needed(tasks_[i]))
        if (plan_.kept_unsharded[bucket] && unsharded.insert(bucket).second) all.push_back({.op = Op::gather, .bucket = bucket});
      if (const int bucket = position_of(needed(tasks_[i])); bucket >= 0) {
        if (holds[present] != bucket) present = 1 - present;
        if (holds[present] != bucket) gather(bucket, present);
        const int next = next_use(i, bucket, &BufferQueue::needed);
        if (next >= 0 && holds[1 - present] != next) gather(next, 1 - present);
      }
      all.push_back(tasks_[i]);
    }
    return all;
  }

  // Gradients of a bucket start at zero in the buffer that is free, and are reduced before gradients of another bucket
  // are written.
  std::vector<Task> with_reductions() {
    std::vector<Task> all;
    int present = 1, open = -1;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const int bucket = position_of(written(tasks_[i]));
      if (bucket >= 0 && open != bucket) {
        present = 1 - present, open = bucket;
        all.push_back({.op = Op::clear, .bucket = bucket, .buffer = present});
      }
      all.push_back(tasks_[i]);
      if (bucket < 0 || next_use(i, -1, &BufferQueue::written) == bucket) continue;
      all.push_back({.op = Op::reduce, .bucket = bucket, .buffer = present});
      open = -1;
    }
    return all;
  }

 private:
  std::vector<int> buckets_of(const Task& t) const { return plan_.buckets[plan_.of(t.chunk).first + t.parts.first]; }
  bool is_head(const Task& t) const { return plan_.head && plan_.of(t.chunk).first + t.parts.first == Index(plan_.buckets.size()) - 1; }
  std::vector<int> needed(const Task& t) const {
    return is_computation(t) && (t.op == Op::forward || !is_head(t)) ? buckets_of(t) : std::vector<int>{};
  }
  std::vector<int> written(const Task& t) const {
    return is_computation(t) && (t.op == Op::forward) == is_head(t) ? buckets_of(t) : std::vector<int>{};
  }
  // The first of these buckets that has no memory of its own; -1: none.
  int position_of(const std::vector<int>& buckets) const {
    for (const int bucket : buckets)
      if (!plan_.kept_unsharded[bucket]) return bucket;
    return -1;
  }
  // The next bucket without memory of its own that a task after the i-th uses, other than `present`; -1: none.
  int next_use(std::size_t i, int present, std::vector<int> (BufferQueue::*use)(const Task&) const) const {
    while (++i < tasks_.size())
      if (const int bucket = position_of((this->*use)(tasks_[i])); bucket >= 0 && bucket != present) return bucket;
    return -1;
  }

  const BucketPlan& plan_;
  std::vector<Task> tasks_;
};

}  // namespace

Span BucketPlan::of(int chunk) const {
  if (parts.empty()) return {chunk, chunk + 1};
  const Index first = std::accumulate(parts.begin(), parts.begin() + chunk, Index(0));
  return {first, first + parts[chunk]};
}

PipelineShape pipeline_shape(const Layout& layout, int micros) {
  const int ranks = layout.size(Axis::pipeline);
  return {ranks, std::max(1, int(layout.stages.size()) / ranks), micros};
}

bool is_computation(const Task& t) { return t.op == Op::forward || is_backward(t.op); }

Program compile(Schedule schedule, const PipelineShape& shape, int rank, const BucketPlan& plan) {
  ensure(shape.ranks > 1 || shape.chunks == 1, "a pipeline of one rank has one chunk, not {}", shape.chunks);
  Program program = Compiler(shape, rank, plan).compile(schedule(shape, rank));
  if (plan.buckets.empty()) return program;
  const bool backwards = std::any_of(program.tasks.begin(), program.tasks.end(), [](const Task& t) { return is_backward(t.op); });
  if (plan.shard >= Shard::gradients && backwards) program.tasks = BufferQueue(plan, std::move(program.tasks)).with_reductions();
  if (plan.shard == Shard::weights) program.tasks = BufferQueue(plan, std::move(program.tasks)).with_gathers();
  return program;
}

std::string to_text(const Program& program) {
  std::string text;
  for (const Task& t : program.tasks) {
    text += fmt::format("{:<17}", name_of(t.op));
    if (t.micro >= 0) text += fmt::format(" chunk {} micro {} slot {}", t.chunk, t.micro, t.slot);
    if (t.peer >= 0)
      text += fmt::format(" {} {} rank {} tag {}", t.payload == Payload::activations ? "activations" : "gradients", t.op == Op::send ? "to" : "from",
                          t.peer, t.tag);
    if (t.bucket >= 0) text += fmt::format(" bucket {}", t.bucket);
    if (t.buffer >= 0) text += fmt::format(" buffer {}", t.buffer);
    text += '\n';
  }
  return text;
}

}  // namespace gyr
