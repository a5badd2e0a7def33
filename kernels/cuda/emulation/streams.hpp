// SPDX-License-Identifier: BSD-3-Clause
// The part of CUDA's driver that orders work. What streams are told are tasks; the machine says whether a task begins as early as it may, as late, or
// whenever. Vector clocks know which tasks are ordered (Mattern 1989): a stream's tasks, by events, by the host's waiting.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/machine.hpp"

struct CUstream_st;

namespace gyr::cuda {

inline constexpr int most_streams = 4;                      // at a time, whose order is judged
using Clock = std::array<std::uint32_t, most_streams + 1>;  // by stream; the last for all others

struct Task {
  std::string name;
  std::function<void()> begin;
  std::function<bool()> poll;  // whether it has ended, once begun; empty: when `begin` returns
  std::vector<std::shared_ptr<Task>> after;
  int stream = 0;
  Clock clock{};
  bool begun = false, done = false;

  // Whether what that stream did at its time `time` comes before this.
  bool follows(int stream, std::uint32_t time) const { return stream >= most_streams || clock[std::size_t(stream)] >= time; }
};

struct Stream {
  int number = 0;
  bool blocking = true;  // waits for the default stream, which waits for it
  std::deque<std::shared_ptr<Task>> tasks;
  std::shared_ptr<Task> last;
  std::vector<std::shared_ptr<Task>> waits;  // of the next task
  Clock clock{};
};

struct Moment {  // of a stream, as an event keeps it
  std::shared_ptr<Task> task;
  Clock clock{};
};

class Streams {
 public:
  static Streams& instance();  // of this process

  Stream* open(bool blocking);
  void close(Stream*);
  // Null: the default stream.
  void enqueue(Stream*, std::string name, std::function<void()> begin, std::function<bool()> poll = {});
  Moment moment(Stream*);
  void wait(Stream*, const Moment&);
  void host_wait(const Moment&);
  bool done(const Moment&);  // lets work advance
  void host_wait_for_all();

  // The task that runs now; null between tasks.
  const Task* running() const { return running_; }
  // What that stream did at that time.
  std::string name_of(int stream, std::uint32_t time) const;

 private:
  Stream* of(Stream* s) { return s ? s : all_.front().get(); }
  bool ready(const Task&) const;
  bool advance(Task&);  // whether anything moved
  bool advance_first(Stream&);
  bool advance_some();
  void advance_all();
  void finish(Task&);
  void join(Clock& a, const Clock& b) const;

  std::vector<std::unique_ptr<Stream>> all_;
  Clock host_{};
  const Task* running_ = nullptr;
  std::mt19937_64 random_{1};
  std::vector<std::vector<std::string>> names_;  // by stream, by time; of a checked machine
  Streams();
};

// A kernel, or a library's.
void enqueue(CUstream_st*, const char* name, std::function<void()> work);
// What the host has launched so far: kernels, products, copies and graphs, each of which is one.
Index launches();

}  // namespace gyr::cuda
