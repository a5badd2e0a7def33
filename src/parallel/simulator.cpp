// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/simulator.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Messages from one rank to another, in order. A message is identified by its index among those sent, or received.
struct Line {
  int from, to;
  std::vector<std::pair<int, double>> sent;  // sent messages: tag, and time of arrival in seconds
  std::vector<int> receives;                 // tags of the receives that have begun
};

// A message: its line, and its index there.
struct Message {
  Line* line = nullptr;
  std::size_t number = 0;
};

struct Walker {
  double clock = 0, busy = 0, message_wait = 0, bucket_wait = 0;
  std::size_t next = 0;
  std::deque<Line> lines;                      // message lines, one for each rank that it sends to
  std::vector<Message> inbox;                  // by chunk, micro-batch and payload: message received for a computation
  std::vector<std::vector<Message>> outbox;    // by slot of all chunks: messages that are still being sent from it
  std::vector<int> first_slot;                 // index of the first slot of each chunk among the slots of all chunks
  double transfers_end = 0;                    // end of the rank's latest reduction or gather, in seconds
  double before_next = 0;                      // seconds waited for transfers that do not overlap, to be added to the next task
  std::vector<double> gathered;                // by bucket: time in seconds at which its weights are gathered
  std::vector<std::pair<int, double>> summed;  // per reduction: index of its buffer, and its end in seconds
  std::vector<TaskSpan> spans;                 // begin, end and waits of each task of the rank
};

class Simulator {
 public:
  Simulator(const std::vector<Program>& programs, const std::vector<TaskTimes>& times) : programs_(programs), times_(times) {
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      const Program& program = programs[rank];
      ensure(times[rank].seconds.size() == program.tasks.size(), "times of {} tasks for a program of {}", times[rank].seconds.size(),
             program.tasks.size());
      Walker& w = walkers_.emplace_back();
      int slots = 0;
      for (const int n : program.slots) w.first_slot.push_back(std::exchange(slots, slots + n));
      w.outbox.resize(slots);
      w.inbox.resize(2 * program.slots.size() * std::size_t(program.shape.micros));
      w.gathered.resize(times[rank].buckets.kept_unsharded.size());
      w.spans.resize(program.tasks.size());
      regather(int(rank));
    }
  }

  Simulation run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < programs_.size(); ++rank)
        while (!is_at_end(int(rank)) && advance(int(rank), walkers_[rank].next)) {
          ++walkers_[rank].next;
          progress = true;
        }
    }
    require_ends();
    return result();
  }

 private:
  // The simulation of a rank ends at its step task. The weight gathers after it were simulated at the start
  // (regather).
  bool is_at_end(int rank) const { return has_ended(rank) || programs_[rank].tasks[walkers_[rank].next].op == Op::step; }

  void regather(int rank) {
    const std::vector<Task>& tasks = programs_[rank].tasks;
    auto task = std::find_if(tasks.begin(), tasks.end(), [](const Task& t) { return t.op == Op::step; });
    for (; task != tasks.end(); ++task)
      if (task->op == Op::gather) gather(walkers_[rank], *task, rank, std::size_t(task - tasks.begin()));
  }

  Simulation result() {
    Simulation all;
    double last = 0, step = 0;
    for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
      Walker& w = walkers_[rank];
      const double waited = w.before_next + wait_until(w, w.transfers_end, w.bucket_wait);
      if (!has_ended(int(rank))) w.spans[w.next].bucket_wait = waited;
      last = std::max(last, w.clock);
      if (!has_ended(int(rank))) {
        step = std::max(step, times_[rank].seconds[w.next]);
        w.busy += times_[rank].seconds[w.next];
      }
      all.busy.push_back(w.busy), all.message_wait.push_back(w.message_wait), all.bucket_wait.push_back(w.bucket_wait);
    }
    all.makespan = last + step;
    for (std::size_t rank = 0; rank < walkers_.size(); ++rank) {
      Walker& w = walkers_[rank];
      if (!has_ended(int(rank))) w.spans[w.next].peer_wait = last - w.clock, done(w, w.next, last, times_[rank].seconds[w.next]);
      all.tasks.push_back(std::move(w.spans));
    }
    return all;
  }

  Line& line_of(int from, int to) {
    std::deque<Line>& lines = walkers_[from].lines;
    const auto known = std::find_if(lines.begin(), lines.end(), [to](const Line& line) { return line.to == to; });
    return known != lines.end() ? *known : lines.emplace_back(Line{from, to, {}, {}});
  }

  // Advances the clock to `moment` and returns the seconds waited.
  static double wait_until(Walker& w, double moment, double& waited) {
    if (moment <= w.clock) return 0;
    const double seconds = moment - w.clock;
    waited += seconds;
    w.clock = moment;
    return seconds;
  }

  static void done(Walker& w, std::size_t number, double begin, double seconds) {
    w.spans[number].begin = begin, w.spans[number].end = begin + seconds;
  }
  static void busy(Walker& w, std::size_t number, double seconds) {
    w.spans[number].bucket_wait += std::exchange(w.before_next, 0.0);
    done(w, number, w.clock, seconds);
    w.clock += seconds, w.busy += seconds;
  }

  Message& inbox(Walker& w, const Task& task, Payload payload) const {
    const std::size_t micros = std::size_t(programs_.front().shape.micros);
    return w.inbox[(std::size_t(task.chunk) * micros + std::size_t(task.micro)) * 2 + std::size_t(payload)];
  }
  static std::vector<Message>& outbox(Walker& w, const Task& task) { return w.outbox[w.first_slot[task.chunk] + task.slot]; }

  // Executes a task of the rank; returns false if the task has to wait for another rank.
  bool advance(int rank, std::size_t number) {
    Walker& w = walkers_[rank];
    const Task& task = programs_[rank].tasks[number];
    const double seconds = times_[rank].seconds[number];
    switch (task.op) {
      case Op::send: {
        Line& line = line_of(rank, task.peer);
        outbox(w, task).push_back({&line, line.sent.size()});
        const double free = line.sent.empty() ? 0 : line.sent.back().second;
        done(w, number, std::max(w.clock, free), seconds);
        line.sent.push_back({task.tag, w.spans[number].end});
        return true;
      }
      case Op::receive: {
        if (task.payload == Payload::activations && !slot_is_free(w, task)) return false;
        Line& line = line_of(task.peer, rank);
        inbox(w, task, task.payload) = {&line, line.receives.size()};
        line.receives.push_back(task.tag);
        done(w, number, w.clock, 0);
        return true;
      }
      case Op::clear:
        for (const auto& [buffer, end] : w.summed)
          if (buffer == task.buffer) w.spans[number].bucket_wait += wait_until(w, end, w.bucket_wait);
        busy(w, number, seconds);
        return true;
      case Op::reduce:
        transfer(w, rank, number);
        if (task.buffer >= 0) w.summed.push_back({task.buffer, w.transfers_end});
        return true;
      case Op::gather: gather(w, task, rank, number); return true;
      case Op::step: return true;
      case Op::forward:
      case Op::backward:
      case Op::backward_input:
      case Op::backward_weights: return compute(w, task, rank, number);
    }
    return true;
  }

  // Starts a transfer after the previous transfers of the rank.
  void transfer(Walker& w, int rank, std::size_t number) const {
    const double seconds = times_[rank].seconds[number];
    done(w, number, std::max(w.clock, w.transfers_end), seconds);
    w.transfers_end = w.spans[number].end;
    if (!times_[rank].overlaps) w.before_next += wait_until(w, w.transfers_end, w.bucket_wait);
  }

  void gather(Walker& w, const Task& task, int rank, std::size_t number) const {
    transfer(w, rank, number);
    w.gathered[task.bucket] = w.transfers_end;
  }

  bool compute(Walker& w, const Task& task, int rank, std::size_t number) {
    TaskSpan& span = w.spans[number];
    Message& awaited = inbox(w, task, task.op == Op::forward ? Payload::activations : Payload::gradients);
    if (awaited.line && task.op != Op::backward_weights) {
      if (awaited.line->sent.size() <= awaited.number) return false;
      span.message_wait = wait_until(w, awaited.line->sent[awaited.number].second, w.message_wait);
      awaited.line = nullptr;
    } else if (task.op == Op::forward && !slot_is_free(w, task)) {
      return false;
    }
    if (const BucketPlan& plan = times_[rank].buckets; plan.shard != Shard::none)
      for (Index part = plan.of(task.chunk).first + task.parts.first; part < plan.of(task.chunk).first + task.parts.last; ++part)
        for (const int bucket : plan.buckets[part]) span.bucket_wait += wait_until(w, w.gathered[bucket], w.bucket_wait);
    busy(w, number, times_[rank].seconds[number]);
    return true;
  }

  // True if no message from the slot is pending. Without buffering, a send ends when the matching receive has started.
  static bool slot_is_free(Walker& w, const Task& task) {
    std::vector<Message>& out = outbox(w, task);
    if (std::any_of(out.begin(), out.end(), [](const Message& m) { return m.line->receives.size() <= m.number; })) return false;
    out.clear();
    return true;
  }

  bool has_ended(int rank) const { return walkers_[rank].next == programs_[rank].tasks.size(); }

  // Rank that a blocked rank waits for: to send the input of its next task, or to receive the message in its slot.
  int awaited_rank(int rank) {
    Walker& w = walkers_[rank];
    const Task& task = programs_[rank].tasks[w.next];
    const Payload payload = task.op == Op::forward ? Payload::activations : Payload::gradients;
    const Message& awaited = inbox(w, task, payload);
    if (task.op != Op::receive && awaited.line) return awaited.line->from;
    for (const Message& message : outbox(w, task))
      if (message.line->receives.size() <= message.number) return message.line->to;
    return rank;
  }

  std::string place_of(int rank) const {
    if (is_at_end(rank)) return fmt::format("rank {} at its end", rank);
    const Task& t = programs_[rank].tasks[walkers_[rank].next];
    return fmt::format("rank {} at '{}' of chunk {}, micro-batch {}", rank, name_of(t.op), t.chunk, t.micro);
  }

  // Chain of blocked ranks, each of which waits for the next one, until a rank occurs again or has ended.
  std::string wait_chain_text(int rank) {
    std::vector<int> chain{rank};
    while (!is_at_end(chain.back())) {
      const int next = awaited_rank(chain.back());
      const auto before = std::find(chain.begin(), chain.end(), next);
      const bool again = before != chain.end();
      if (again) chain.erase(chain.begin(), before);  // ranks that only lead to the cycle
      chain.push_back(next);
      if (again) break;
    }
    std::string text;
    for (const int each : chain) text += (text.empty() ? "" : " waits for ") + place_of(each);
    return text;
  }

  void require_ends() {
    for (int rank = 0; rank < int(programs_.size()); ++rank) ensure(is_at_end(rank), "the schedule deadlocks: {}", wait_chain_text(rank));
    for (const Walker& w : walkers_)
      for (const Line& line : w.lines) {
        ensure(line.sent.size() == line.receives.size(), "rank {} sends {} messages to rank {}, which receives {}", line.from, line.sent.size(),
               line.to, line.receives.size());
        for (std::size_t i = 0; i < line.sent.size(); ++i)
          ensure(line.sent[i].first == line.receives[i], "message {} from rank {} to rank {} is sent with tag {} and received with tag {}", i,
                 line.from, line.to, line.sent[i].first, line.receives[i]);
      }
  }

  const std::vector<Program>& programs_;
  const std::vector<TaskTimes>& times_;
  std::deque<Walker> walkers_;
};

double cost_of(const Task& task, const TaskCosts& costs, int chunks) {
  if (task.op == Op::send) return costs.transfer;
  if (!is_computation(task)) return 0;
  const double of_input = task.op == Op::backward || task.op == Op::backward_input ? costs.backward_input : 0;
  const double of_weights = task.op == Op::backward || task.op == Op::backward_weights ? costs.backward_weights : 0;
  return (task.op == Op::forward ? costs.forward : of_input + of_weights) / chunks;
}

}  // namespace

// The cost of an incomplete group does not depend on the number of full groups before it.
double bubble_fraction(Schedule schedule, const PipelineShape& shape) {
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

Simulation timeline(const std::vector<Program>& programs, const std::vector<TaskTimes>& times) { return Simulator(programs, times).run(); }

Simulation simulate(const std::vector<Program>& programs, const TaskCosts& costs) {
  std::vector<TaskTimes> times;
  for (const Program& program : programs) {
    TaskTimes& of_rank = times.emplace_back();
    for (const Task& task : program.tasks) of_rank.seconds.push_back(cost_of(task, costs, program.shape.chunks));
  }
  return timeline(programs, times);
}

}  // namespace gyr
