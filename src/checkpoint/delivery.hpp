// SPDX-License-Identifier: BSD-3-Clause
// Transfer of a checkpoint's data from the ranks that hold it to the ranks that write it.
#pragma once

#include <map>
#include <memory>

#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/engine/model/model_state.hpp"

namespace gyr {

// Receives boxes in order, slab by slab. place() returns the address for the next `bytes`; taken() reports that they
// have arrived. An error is kept until check(), because the data that other ranks send must be received in any case.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual std::byte* place(Index bytes) = 0;
  virtual void taken(const Move&, Index rows, Index bytes) = 0;
  virtual void check() const = 0;
};

class Delivery {
 public:
  // `writers[position]`: position of the rank that writes for the rank at `position`. `spread`: see contributed_boxes().
  Delivery(ModelState&, const std::vector<PlacedTensor>&, std::vector<int> writers, bool spread);

  const std::vector<Move>& boxes() const { return boxes_; }  // boxes that this rank writes
  Index bytes() const { return bytes_; }                     // bytes of the boxes that this rank writes
  // Sends this rank's boxes to its writer and passes the boxes that this rank writes to the sink. Every rank must call
  // it.
  void run(Sink*) const;

 private:
  using Slab = std::vector<std::byte>;
  void pack(const Move&, Index first, Index rows, std::byte* to) const;
  const std::byte* kept(const PlacedTensor&, const Piece&) const;
  void send() const;
  void take(const Move&, Sink&) const;
  Index slab_of(const Move& b) const { return slab_rows(tensors_[b.tensor].dtype, b.box.count); }

  ModelState& state_;
  const std::vector<PlacedTensor>& tensors_;
  std::vector<int> writers_;
  std::vector<Move> given_;  // boxes that this rank contributes
  std::vector<Move> boxes_;
  Index bytes_ = 0;
  std::map<std::string, const Parameter*> parameters_;
  mutable std::vector<std::byte> copy_;  // host copy of one shard, if the host cannot read device memory
  mutable const PlacedTensor* copied_ = nullptr;
};

}  // namespace gyr
