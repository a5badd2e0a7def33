// SPDX-License-Identifier: BSD-3-Clause
// Memory plan of a micro-batch, from its forward to the end of its backward. A rehearsal records every request for
// memory and when it is freed. A plan then assigns an address to each request. Later micro-batches must make the same
// requests in the same order, and get these addresses. If the count of an input varies by micro-batch, such as the rows of
// images, a few capacities (rooms) are rehearsed: each has a script of its own, and a micro-batch uses the smallest that
// holds its input.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device/memory_plan.hpp"

namespace gyr {

struct Script {
  struct Request {
    std::string name;
    Index bytes = 0;
    int block = 0;
    bool workspace = false;  // true: scratch of a kernel, and `bytes` is the most that it uses
  };
  std::vector<Request> requests;  // memory requests, in the order in which they are made
  // Lifetimes of the requests; time counts requests and frees. Consecutive workspaces share a block.
  std::vector<SlotBlock> blocks;
  SlotPlan plan;
  std::string input = {};  // the input whose count varies, for messages
  Index capacity = -1;     // largest count of the input; negative: there is no such input

  // Merges the script of another micro-batch of the same model chunk; an internal error if its requests differ.
  void join(const Script& other);
};

class Tape {
 public:
  // Rehearsal: writes the script at the end of the first micro-batch, and compares later micro-batches with it. Several
  // scripts have rising capacities.
  explicit Tape(std::vector<std::shared_ptr<Script>> rooms) : rehearsals_(std::move(rooms)), rehearsal_(rehearsals_.front()) {}
  explicit Tape(std::shared_ptr<Script> script) : Tape(std::vector{std::move(script)}) {}
  // Replay: places requests as planned, in a slot (memory of one micro-batch in flight) and in memory that all slots
  // share.
  Tape(std::vector<std::shared_ptr<const Script>> rooms, char* slot, char* shared)
      : scripts_(std::move(rooms)), script_(scripts_.front()), slot_(slot), shared_(shared) {}
  Tape(std::shared_ptr<const Script> script, char* slot, char* shared) : Tape(std::vector{std::move(script)}, slot, shared) {}

  // Begins a micro-batch whose input has this count: its requests are those of
  // the smallest room that holds it. Returns the capacity of the room, or
  // `count` if there is no such input. Exit::data naming the input if no room
  // holds it.
  Index enter(Index count);
  void* take(const char* name, Index bytes);
  void give_back(const void* piece);
  // Scratch memory of a kernel, from open to close. Between the two, nothing else is requested or freed.
  struct Slot {
    char* base;
    Index bytes;
  };
  Slot open(const char* kernel);
  void close(Index used);

  // End of a task: other micro-batches may run now, and pieces that are not freed yet stay allocated for later tasks.
  void end_task();
  // Replay only: until its end, the micro-batch runs as CUDA graphs that were captured from an earlier one. It makes no
  // more requests.
  void skip();
  // End of the micro-batch.
  void rewind();

  // Rehearsal only: bytes alive now, and the most during the last task.
  Index live() const { return live_; }
  Index last_peak() const { return last_peak_; }
  // Replay only: highest offset in bytes used so far in the slot, and in the shared memory.
  Index slot_high() const { return slot_high_; }
  Index shared_high() const { return shared_high_; }

 private:
  struct Piece {
    const void* data;
    int request;
  };
  bool replays() const { return script_ != nullptr; }
  template <class S>
  static Index choose(Index count, const std::vector<std::shared_ptr<S>>& rooms, std::shared_ptr<S>& chosen);
  const Script::Request& expect(const char* name, Index bytes, bool workspace);
  void write(const char* name, Index bytes, bool workspace);
  char* place(const Script::Request&);
  void grow(Index bytes);

  std::vector<std::shared_ptr<Script>> rehearsals_;
  std::shared_ptr<Script> rehearsal_;  // of the current micro-batch
  Script written_;
  Index taken_ = 0, live_ = 0, peak_ = 0, last_peak_ = 0;
  bool after_workspace_ = false;

  std::vector<std::shared_ptr<const Script>> scripts_;
  std::shared_ptr<const Script> script_;  // of the current micro-batch
  char *slot_ = nullptr, *shared_ = nullptr;
  Index slot_high_ = 0, shared_high_ = 0;
  std::string wrong_;  // first error in a free; reported at the next request, because destructors must not throw

  Index now_ = 0;
  int next_ = 0;  // index of the next request
  bool skips_ = false;
  std::vector<Piece> pieces_;  // pieces of memory that are allocated now
};

}  // namespace gyr
