// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/simulator.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "kernels/error.hpp"

namespace gyr {

namespace {

// Messages from one rank to another, in order. The number of a message is its place in the line of those sent, or received.
struct Line {
  int from, to;
  std::vector<std::pair<int, double>> sent;  // tag and time
  std::vector<int> receives;                 // tags of the receives that have begun
};

struct Walker {
  double clock = 0, busy = 0;
  std::size_t next = 0;
  // By chunk, micro-batch and payload: the line and the number of what has been received for a computation.
  std::map<std::tuple<int, int, Payload>, std::pair<Line*, std::size_t>> inbox;
  // By chunk and slot: what is still on its way out of it.
  std::map<std::pair<int, int>, std::vector<std::pair<Line*, std::size_t>>> outbox;
};

class Simulator {
 public:
  Simulator(const std::vector<Program>& programs, const TaskCosts& costs) : programs_(programs), costs_(costs), walkers_(programs.size()) {}

  Simulation run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < programs_.size(); ++rank)
        while (walkers_[rank].next < programs_[rank].tasks.size() && advance(int(rank), programs_[rank].tasks[walkers_[rank].next])) {
          ++walkers_[rank].next;
          progress = true;
        }
    }
    require_ends();
    Simulation result;
    for (const Walker& w : walkers_) {
      result.makespan = std::max(result.makespan, w.clock);
      result.busy.push_back(w.busy);
    }
    return result;
  }

 private:
  Line& line_of(int from, int to) { return lines_.try_emplace({from, to}, Line{from, to, {}, {}}).first->second; }

  // Whether the rank could do its next task.
  bool advance(int rank, const Task& task) {
    Walker& w = walkers_[rank];
    switch (task.op) {
      case Op::send: {
        Line& line = line_of(rank, task.peer);
        w.outbox[{task.chunk, task.slot}].push_back({&line, line.sent.size()});
        line.sent.push_back({task.tag, w.clock});
        return true;
      }
      case Op::receive: {
        if (task.payload == Payload::activations && !slot_is_free(w, task)) return false;
        Line& line = line_of(task.peer, rank);
        w.inbox[{task.chunk, task.micro, task.payload}] = {&line, line.receives.size()};
        line.receives.push_back(task.tag);
        return true;
      }
      case Op::clear:
      case Op::reduce:
      case Op::gather:
      case Op::step: return true;
      case Op::forward:
      case Op::backward:
      case Op::backward_input:
      case Op::backward_weights: return compute(w, task);
    }
    return true;
  }

  bool compute(Walker& w, const Task& task) {
    const Payload payload = task.op == Op::forward ? Payload::activations : Payload::gradients;
    const auto awaited = w.inbox.find({task.chunk, task.micro, payload});
    if (awaited != w.inbox.end() && task.op != Op::backward_weights) {
      const auto [line, number] = awaited->second;
      if (line->sent.size() <= number) return false;
      w.clock = std::max(w.clock, line->sent[number].second + costs_.transfer);
      w.inbox.erase(awaited);
    } else if (task.op == Op::forward && !slot_is_free(w, task)) {
      return false;
    }
    const double cost = cost_of(task);
    w.clock += cost, w.busy += cost;
    return true;
  }

  // Without buffers a send ends when the facing receive has begun.
  static bool slot_is_free(Walker& w, const Task& task) {
    auto& out = w.outbox[{task.chunk, task.slot}];
    if (std::any_of(out.begin(), out.end(), [](const auto& message) { return message.first->receives.size() <= message.second; })) return false;
    out.clear();
    return true;
  }

  double cost_of(const Task& task) const {
    const double of_input = task.op == Op::backward || task.op == Op::backward_input ? costs_.backward_input : 0;
    const double of_weights = task.op == Op::backward || task.op == Op::backward_weights ? costs_.backward_weights : 0;
    return (task.op == Op::forward ? costs_.forward : of_input + of_weights) / programs_.front().shape.chunks;
  }

  bool has_ended(int rank) const { return walkers_[rank].next == programs_[rank].tasks.size(); }

  // The rank that one which cannot go on waits for: to send what its next task reads, or to receive what is in its slot.
  int awaited_by(int rank) const {
    const Walker& w = walkers_[rank];
    const Task& task = programs_[rank].tasks[w.next];
    const Payload payload = task.op == Op::forward ? Payload::activations : Payload::gradients;
    const auto awaited = w.inbox.find({task.chunk, task.micro, payload});
    if (task.op != Op::receive && awaited != w.inbox.end()) return awaited->second.first->from;
    for (const auto& [line, number] : w.outbox.at({task.chunk, task.slot}))
      if (line->receives.size() <= number) return line->to;
    return rank;
  }

  std::string place_of(int rank) const {
    if (has_ended(rank)) return fmt::format("rank {} at its end", rank);
    const Task& t = programs_[rank].tasks[walkers_[rank].next];
    return fmt::format("rank {} at '{}' of chunk {}, micro-batch {}", rank, name_of(t.op), t.chunk, t.micro);
  }

  // Of ranks that cannot go on, each the next one's: until one comes again, or has ended.
  std::string waits_from(int rank) const {
    std::vector<int> chain{rank};
    while (!has_ended(chain.back())) {
      const int next = awaited_by(chain.back());
      const auto before = std::find(chain.begin(), chain.end(), next);
      const bool again = before != chain.end();
      if (again) chain.erase(chain.begin(), before);  // what only leads there
      chain.push_back(next);
      if (again) break;
    }
    std::string text;
    for (const int each : chain) text += (text.empty() ? "" : " waits for ") + place_of(each);
    return text;
  }

  void require_ends() const {
    for (int rank = 0; rank < int(programs_.size()); ++rank) ensure(has_ended(rank), "the schedule deadlocks: {}", waits_from(rank));
    for (const auto& [pair, line] : lines_) {
      ensure(line.sent.size() == line.receives.size(), "rank {} sends {} messages to rank {}, which receives {}", pair.first, line.sent.size(),
             pair.second, line.receives.size());
      for (std::size_t i = 0; i < line.sent.size(); ++i)
        ensure(line.sent[i].first == line.receives[i], "message {} from rank {} to rank {} is sent with tag {} and received with tag {}", i,
               pair.first, pair.second, line.sent[i].first, line.receives[i]);
    }
  }

  const std::vector<Program>& programs_;
  TaskCosts costs_;
  std::vector<Walker> walkers_;
  std::map<std::pair<int, int>, Line> lines_;
};

}  // namespace

// A group that is not full costs the same however many full ones come before it.
double idle_part(Schedule schedule, const PipelineShape& shape) {
  const auto [p, v, m] = shape;
  const bool splits = schedule == zero_bubble;
  double waits = double(p - 1) / (splits ? 3 : v);
  if ((v > 1 && m % p != 0) || (splits && m < p)) {
    const PipelineShape few{p, v, m % p + (m > p ? p : 0)};
    std::vector<Program> programs;
    for (int rank = 0; rank < p; ++rank) programs.push_back(compile(schedule, few, rank));
    waits = simulate(programs, {}).makespan / TaskCosts().compute() - few.micros;
  }
  return waits / (m + waits);
}

Simulation simulate(const std::vector<Program>& programs, const TaskCosts& costs) { return Simulator(programs, costs).run(); }

}  // namespace gyr
