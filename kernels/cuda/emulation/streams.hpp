// SPDX-License-Identifier: BSD-3-Clause
// Emulation of CUDA streams and events. Work launched on a stream becomes a task. The machine decides if a task begins
// as early as possible, as late as possible, or at a random time. Vector clocks track which tasks are ordered (Mattern
// 1989): by their stream, by events, or by host synchronisation.
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

inline constexpr int most_streams = 4;                      // maximum number of streams whose order is checked
using Clock = std::array<std::uint32_t, most_streams + 1>;  // time of each stream; the last entry is for all other streams

struct Task {
  std::string name;
  std::function<void()> begin;
  std::function<bool()> poll;  // returns true when the task has ended; empty: it ends when `begin` returns
  std::vector<std::shared_ptr<Task>> after;
  int stream = 0;
  Clock clock{};
  bool begun = false, done = false;

  // True if the work that `stream` did at its time `time` is ordered before this task.
  bool follows(int stream, std::uint32_t time) const { return stream >= most_streams || clock[std::size_t(stream)] >= time; }
};

struct Stream {
  int number = 0;
  bool blocking = true;  // true: the stream synchronises with the default stream
  std::deque<std::shared_ptr<Task>> tasks;
  std::shared_ptr<Task> last;
  std::vector<std::shared_ptr<Task>> waits;  // tasks that the next task of the stream depends on
  Clock clock{};
};

struct Moment {  // position in a stream, as recorded by an event
  std::shared_ptr<Task> task;
  Clock clock{};
};

class Streams {
 public:
  static Streams& instance();  // singleton: the streams of this process

  Stream* open(bool blocking);
  void close(Stream*);
  // Enqueues a task on a stream; null: the default stream.
  void enqueue(Stream*, std::string name, std::function<void()> begin, std::function<bool()> poll = {});
  Moment moment(Stream*);
  void wait(Stream*, const Moment&);
  void host_wait(const Moment&);
  bool done(const Moment&);  // true if all work before this position has ended; also lets tasks advance
  void host_wait_for_all();

  // The running task, or null between tasks.
  const Task* running() const { return running_; }
  // Name of the task that the stream ran at this time.
  std::string name_of(int stream, std::uint32_t time) const;

 private:
  Stream* of(Stream* s) { return s ? s : all_.front().get(); }
  bool ready(const Task&) const;
  bool advance(Task&);  // begins the task if it is ready, and ends it if its work is done; returns true if it did either
  bool advance_first(Stream&);
  bool advance_some();
  void advance_all();
  void finish(Task&);
  void join(Clock& a, const Clock& b) const;

  std::vector<std::unique_ptr<Stream>> all_;
  Clock host_{};
  const Task* running_ = nullptr;
  std::mt19937_64 random_{1};
  std::vector<std::vector<std::string>> names_;  // task names by stream and time; recorded by a checked machine
  Streams();
};

// Launches a kernel or a library call on a stream.
void enqueue(CUstream_st*, const char* name, std::function<void()> work);
// Number of launches by the host so far: kernels, GEMMs and copies. A graph counts as one launch.
Index launches();

}  // namespace gyr::cuda
