// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/streams.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cuda/emulation/graphs.hpp"

namespace gyr::cuda {

Streams& Streams::instance() {
  static Streams& streams = *new Streams;  // never destroyed, because devices may be destroyed later
  return streams;
}

Streams::Streams() : names_(most_streams) {
  random_.seed(Machine::instance().seed);
  open(true);
}

Stream* Streams::open(bool blocking) {
  int number = 0;
  const auto has = [&](int n) { return std::any_of(all_.begin(), all_.end(), [&](const auto& s) { return s->number == n; }); };
  while (number < most_streams && has(number)) ++number;
  Stream& s = *all_.emplace_back(std::make_unique<Stream>());
  s.number = number, s.blocking = blocking;
  s.clock = host_;
  return &s;
}

void Streams::close(Stream* s) {
  host_wait(moment(s));
  std::erase_if(all_, [&](const auto& other) { return other.get() == s; });
}

void Streams::join(Clock& a, const Clock& b) const {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], b[i]);
}

void Streams::enqueue(Stream* to, std::string name, std::function<void()> begin, std::function<bool()> poll) {
  if (Capture* const capture = Capture::current(); capture && capture->has(to))
    return capture->add(to, std::move(name), std::move(begin), std::move(poll));
  Stream& s = *of(to);
  auto task = std::make_shared<Task>();
  task->name = std::move(name), task->begin = std::move(begin), task->poll = std::move(poll), task->stream = s.number;
  task->after = std::exchange(s.waits, {});
  join(s.clock, host_);
  for (const auto& other : all_)
    if (other.get() == &s || (s.blocking && other->blocking && (&s == of(nullptr) || other.get() == of(nullptr)))) {
      if (other->last) task->after.push_back(other->last);
      join(s.clock, other->clock);
    }
  ++s.clock[std::size_t(s.number)];
  task->clock = s.clock;
  if (Machine::instance().checked && s.number < most_streams) {
    auto& names = names_[std::size_t(s.number)];
    names.resize(s.clock[std::size_t(s.number)]);
    names.push_back(task->name);
  }
  s.last = task;
  s.tasks.push_back(std::move(task));
  switch (Machine::instance().when) {
    case When::early: return advance_all();
    case When::late: return;
    case When::any:
      while (random_() % 2) advance_some();
  }
}

Moment Streams::moment(Stream* s) { return {of(s)->last, of(s)->clock}; }

// The wait is a task of its own, so that other streams and the host see the stream as busy.
void Streams::wait(Stream* to, const Moment& m) {
  Stream& s = *of(to);
  join(s.clock, m.clock);
  if (!m.task || m.task->done) return;
  s.waits.push_back(m.task);
  enqueue(to, "a wait", [] {});
}

// Also starts tasks that the host does not wait for: other ranks may depend on them, and no task advances while this
// rank waits in MPI.
void Streams::host_wait(const Moment& m) {
  if (m.task) finish(*m.task);
  join(host_, m.clock);
  advance_all();
}

bool Streams::done(const Moment& m) {
  advance_all();
  if (m.task && !m.task->done) return false;
  join(host_, m.clock);
  return true;
}

void Streams::host_wait_for_all() {
  for (std::size_t i = 0; i < all_.size(); ++i) host_wait(moment(all_[i].get()));
}

bool Streams::ready(const Task& t) const {
  return std::all_of(t.after.begin(), t.after.end(), [](const auto& earlier) { return earlier->done; });
}

bool Streams::advance(Task& t) {
  if (t.done || running_ || !ready(t)) return false;
  const bool fresh = !std::exchange(t.begun, true);
  if (fresh) {
    running_ = &t;
    struct Ended {
      const Task*& running;
      ~Ended() { running = nullptr; }
    } const ended{running_};
    t.begin();
  }
  if (t.poll && !t.poll()) return fresh;
  t.done = true;
  t.after.clear(), t.begin = {}, t.poll = {};
  return true;
}

// Advances the first task of the stream that has not ended.
bool Streams::advance_first(Stream& s) {
  while (!s.tasks.empty() && s.tasks.front()->done) s.tasks.pop_front();
  return !s.tasks.empty() && advance(*s.tasks.front());
}

// Advances the first task of a random stream.
bool Streams::advance_some() {
  Stream& s = *all_[random_() % all_.size()];
  return advance_first(s);
}

void Streams::advance_all() {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < all_.size(); ++i)
      while (advance_first(*all_[i])) moved = true;
  }
}

// Runs a task to its end. If tasks begin late, only its dependencies are started. If it waits for another rank, all
// other tasks advance too, because that rank may depend on them.
void Streams::finish(Task& t) {
  while (!t.done) {
    if (Machine::instance().when == When::any && random_() % 2) advance_some();
    Task* next = &t;
    while (!ready(*next)) {
      for (const auto& earlier : next->after)
        if (!earlier->done) {
          next = earlier.get();
          break;
        }
    }
    if (!advance(*next)) advance_all();
  }
}

std::string Streams::name_of(int stream, std::uint32_t time) const {
  const auto& names = names_[std::size_t(stream)];
  return time < names.size() ? names[time] : "an earlier task";
}

}  // namespace gyr::cuda
