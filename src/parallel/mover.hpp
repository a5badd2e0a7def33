// SPDX-License-Identifier: BSD-3-Clause
// Executes a plan of moves (moves.hpp): weights travel from the ranks of one model to those of another model of the same
// configuration, such as from a training engine to an engine that generates or scores on another layout.
#pragma once

#include <deque>

#include "kernels/comm/communicator.hpp"
#include "modules/weights/parameter.hpp"
#include "src/parallel/moves.hpp"

namespace gyr {

// Weights that this rank sends: none if it is not in the mesh of the sending model.
struct MoveSource {
  ParameterList parameters = {};
  // Data that the rank stores of a weight (ModelState::tensor): the weight, or its master weight. Empty: the weight.
  std::function<Piece(const Parameter&, Content)> stored = {};
};

// Weights that this rank receives. `arrived` is called once for each of them, when it is complete, and derives data from
// it (engine/model/filling.hpp).
struct MoveDestination {
  ParameterList parameters = {};
  Arrived arrived = {};
};

// Sends and receives the messages of one rank without blocking: at most two in each direction are in flight. The rank
// may compute between calls of advance(), but must neither change the source weights nor use the destination's until
// they are complete. Both are in separate memory, and kernels that write the source weights must have finished before
// (Device::fence). Master weights and optimizer state of the destination do not change (ModelState::reset_optimizer).
class Mover {
 public:
  // `world`: communicator of the plan's ranks that no other operation uses meanwhile; it counts the traffic. Each rank of
  // one of the meshes has a mover; other ranks need none. `bucket_bytes`: maximum size of a message. `buffers`: memory for
  // four messages that nothing else uses meanwhile; null: the mover allocates its own.
  Mover(const MovePlan&, Communicator& world, MoveSource, MoveDestination, Index bucket_bytes = Index(32) << 20, const Arena* buffers = nullptr);

  // Starts messages and completes those that have arrived. Returns true once this rank's part of the move is done.
  bool advance();
  // Advances until this rank's part is done.
  void finish();
  Index buffer_bytes() const { return buffers_.capacity(); }

 private:
  struct Message {
    const MoveBucket* bucket;
    AnyTensor buffer;
    Event event;
  };
  // Contiguous or strided elements: `first` is the element of the row-major array of this shape that is at `values`.
  struct Place {
    AnyTensor values;
    Index first;
    Shape shape;
    Box box;
  };
  struct Arriving {
    const Parameter* parameter;
    Index expected = 0, missing = 0;  // elements
  };

  void sort_buckets(const std::vector<MoveBucket>&);
  void allocate(const Arena* memory);
  void start_receives();
  void start_sends();
  void pack(const Message&);
  void unpack(const Message&);
  Place source(const MoveBucket::Part&) const;
  Place destination(const MoveBucket::Part&) const;
  void copy(const Place& from, const Place& to);
  void begin(const Arriving&);
  void complete(const Arriving&);

  Communicator& world_;
  MoveSource from_;
  MoveDestination to_;
  std::vector<Content> contents_;   // by weight of the plan
  std::vector<std::string> names_;  // the same
  std::map<std::string, const Parameter*> sent_;
  std::map<std::string, Arriving> arriving_;
  std::vector<MoveBucket> outgoing_, incoming_;  // messages of this rank in order; incoming ones include local copies
  std::size_t started_out_ = 0, started_in_ = 0;
  Device device_;
  Arena buffers_;
  std::array<AnyTensor, 2> out_buffers_, in_buffers_;
  std::deque<Message> sending_, receiving_;
  bool begun_ = false, done_ = false;
};

}  // namespace gyr
