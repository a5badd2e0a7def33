// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/program.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace gyr {

namespace {

bool is_backward(Op op) { return op == Op::backward || op == Op::backward_input || op == Op::backward_weights; }

// The turns behind which a chunk has nothing more to do for a micro-batch.
class Lifetimes {
 public:
  explicit Lifetimes(const std::vector<Turn>& turns) {
    for (std::size_t i = 0; i < turns.size(); ++i) {
      last_[{turns[i].chunk, turns[i].micro}] = i;
      if (is_backward(turns[i].op)) last_backward_[turns[i].chunk] = i;
    }
  }
  bool ends(const Turn& turn, std::size_t i) const { return last_.at({turn.chunk, turn.micro}) == i; }
  // Whether the gradients of the chunk's weights get their last summand here.
  bool completes(const Turn& turn, std::size_t i) const {
    const auto found = last_backward_.find(turn.chunk);
    return found != last_backward_.end() && found->second == i;
  }

 private:
  std::map<std::pair<int, int>, std::size_t> last_;
  std::map<int, std::size_t> last_backward_;
};

// Slots of one chunk: a micro-batch takes the lowest that is free.
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
  std::vector<int> holder_;  // micro-batch of each slot; -1: none
};

class Compiler {
 public:
  Compiler(const PipelineShape& shape, int rank, const GradientParts& gradients)
      : shape_(shape), rank_(rank), gradients_(gradients), slots_(shape.chunks), incomplete_(gradients.buckets.size()) {
    for (std::size_t b = 0; b < incomplete_.size(); ++b) {
      const Span& bucket = gradients.buckets[b];
      incomplete_[b] = bucket.size();
      bucket_of_.resize(std::max<std::size_t>(bucket_of_.size(), bucket.last), -1);
      std::fill(bucket_of_.begin() + bucket.first, bucket_of_.begin() + bucket.last, int(b));
    }
    program_.shape = shape;
  }

  Program compile(const std::vector<Turn>& turns) {
    const Lifetimes lifetimes(turns);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const Turn& turn = turns[i];
      before(turn);
      const Span parts = gradients_.of(turn.chunk);
      if (!gradients_.buckets.empty() && lifetimes.completes(turn, i))
        for (Index part = parts.last - 1; part >= parts.first; --part) {
          program_.tasks.push_back(task(turn, {part - parts.first, part - parts.first + 1}));
          complete(part);
        }
      else program_.tasks.push_back(task(turn, {0, parts.size()}));
      after(turn);
      if (lifetimes.ends(turn, i)) end(turn);
    }
    if (!gradients_.buckets.empty()) program_.tasks.push_back({Op::step});
    for (const Slots& slots : slots_) program_.slots.push_back(slots.count());
    return std::move(program_);
  }

 private:
  Task task(const Turn& turn, Span parts) {
    return {.op = turn.op, .chunk = turn.chunk, .micro = turn.micro, .slot = slots_[turn.chunk].of(turn.micro), .parts = parts};
  }

  // `stage` is where the message begins to be needed.
  void transfer(Op op, const Turn& turn, Payload payload, int peer_stage, int needing_stage) {
    Task t = task(turn, {});
    t.op = op, t.payload = payload;
    t.peer = peer_stage % shape_.ranks;
    t.tag = int((2 * (std::int64_t(turn.micro) * shape_.stages() + needing_stage) + int(payload)) % message_tags);
    program_.tasks.push_back(t);
  }

  void before(const Turn& turn) {
    const int stage = shape_.stage(rank_, turn.chunk);
    if (turn.op == Op::forward) slots_[turn.chunk].take(turn.micro);
    if (turn.op == Op::forward && stage > 0) transfer(Op::receive, turn, Payload::activations, stage - 1, stage);
    if ((turn.op == Op::backward || turn.op == Op::backward_input) && stage < shape_.stages() - 1)
      transfer(Op::receive, turn, Payload::gradients, stage + 1, stage);
  }

  void after(const Turn& turn) {
    const int stage = shape_.stage(rank_, turn.chunk);
    if (turn.op == Op::forward && stage < shape_.stages() - 1) transfer(Op::send, turn, Payload::activations, stage + 1, stage + 1);
    if ((turn.op == Op::backward || turn.op == Op::backward_input) && stage > 0) transfer(Op::send, turn, Payload::gradients, stage - 1, stage - 1);
  }

  void end(const Turn& turn) {
    auto last = program_.tasks.rbegin();
    while (last->op == Op::reduce) ++last;
    last->last_use = true;
    slots_[turn.chunk].give_back(slots_[turn.chunk].of(turn.micro));
  }

  void complete(Index part) {
    const int bucket = bucket_of_[part];
    if (--incomplete_[bucket] > 0) return;
    Task t{Op::reduce};
    t.bucket = bucket;
    program_.tasks.push_back(t);
  }

  PipelineShape shape_;
  int rank_;
  const GradientParts& gradients_;
  std::vector<Slots> slots_;
  std::vector<Index> incomplete_;  // parts of each bucket that will still get something
  std::vector<int> bucket_of_;     // each part
  Program program_;
};

}  // namespace

Span GradientParts::of(int chunk) const {
  if (parts.empty()) return {chunk, chunk + 1};
  const Index first = std::accumulate(parts.begin(), parts.begin() + chunk, Index(0));
  return {first, first + parts[chunk]};
}

PipelineShape pipeline_shape(const Layout& layout, int micros) {
  const int ranks = layout.size(Axis::pipeline);
  return {ranks, std::max(1, int(layout.stages.size()) / ranks), micros};
}

Program compile(Schedule schedule, const PipelineShape& shape, int rank, const GradientParts& gradients) {
  ensure(shape.ranks > 1 || shape.chunks == 1, "one rank has one chunk, not {}", shape.chunks);
  return Compiler(shape, rank, gradients).compile(schedule(shape, rank));
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
    text += '\n';
  }
  return text;
}

}  // namespace gyr
