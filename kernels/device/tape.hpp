// SPDX-License-Identifier: BSD-3-Clause
// What a micro-batch asks for of memory, from its forward to the end of its backward. A rehearsal writes it down, and when each piece is given
// back; a plan gives each a place; then every micro-batch must ask for the same, in the same order, and finds its pieces there.
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
    bool workspace = false;  // of a kernel: so much at most
  };
  std::vector<Request> requests;  // in order
  // Their lifetimes; time counts what is asked for and what is given back. Workspaces that follow each other share a block.
  std::vector<SlotBlock> blocks;
  SlotPlan plan;

  // Another micro-batch of the same chunk: an internal error where it asked for something else.
  void join(const Script& other);
};

class Tape {
 public:
  // Rehearses: the script is written at the end of the first micro-batch, those after it are compared with it.
  explicit Tape(std::shared_ptr<Script> script) : rehearsal_(std::move(script)) {}
  // Replays a planned script in the memory of a slot and in what all slots share.
  Tape(std::shared_ptr<const Script> script, char* slot, char* shared) : script_(std::move(script)), slot_(slot), shared_(shared) {}

  void* take(const char* name, Index bytes);
  void give_back(const void* piece);
  // The memory of a kernel, from open to close; between the two nothing is taken or given back.
  struct Room {
    char* base;
    Index bytes;
  };
  Room open(const char* kernel);
  void close(Index used);

  // Other slots have their turn: what is not given back is needed until later.
  void end_task();
  // In a replay: up to its end the micro-batch is told as graphs of one that asked for everything. Nothing more is taken.
  void skip();
  // The micro-batch has ended.
  void rewind();

  // In a rehearsal: bytes alive now, and the most during the last task.
  Index live() const { return live_; }
  Index last_peak() const { return last_peak_; }
  // In a replay: the ends of what has been used.
  Index slot_high() const { return slot_high_; }
  Index shared_high() const { return shared_high_; }

 private:
  struct Piece {
    const void* data;
    int request;
  };
  bool replays() const { return script_ != nullptr; }
  const Script::Request& expect(const char* name, Index bytes, bool workspace);
  void write(const char* name, Index bytes, bool workspace);
  char* place(const Script::Request&);
  void grow(Index bytes);

  std::shared_ptr<Script> rehearsal_;
  Script written_;
  Index taken_ = 0, live_ = 0, peak_ = 0, last_peak_ = 0;
  bool after_workspace_ = false;

  std::shared_ptr<const Script> script_;
  char *slot_ = nullptr, *shared_ = nullptr;
  Index slot_high_ = 0, shared_high_ = 0;
  std::string wrong_;  // what was given back at a wrong time: said at the next request, since blocks end where nothing may be thrown

  Index now_ = 0;
  int next_ = 0;  // request
  bool skips_ = false;
  std::vector<Piece> pieces_;  // alive
};

}  // namespace gyr
