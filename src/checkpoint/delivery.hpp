// SPDX-License-Identifier: BSD-3-Clause
// The way of a checkpoint's numbers from the ranks that hold them to those that write them.
#pragma once

#include <map>
#include <memory>

#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/engine/model/model_state.hpp"

namespace gyr {

// Takes boxes in order, slab after slab: `place` says where the next bytes shall go, `taken` that they are there. An error is kept until
// `check`, because what other ranks send must be received all the same.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual std::byte* place(Index bytes) = 0;
  virtual void taken(const Move&, Index rows, Index bytes) = 0;
  virtual void check() const = 0;
};

class Delivery {
 public:
  // `writers`: by position, who writes for it.
  Delivery(ModelState&, const std::vector<PlacedTensor>&, std::vector<int> writers, bool spread);

  const std::vector<Move>& boxes() const { return boxes_; }  // that this rank writes
  Index bytes() const { return bytes_; }                     // of them
  // Sends what this rank gives, and brings what it writes into the sink. Every rank must call it.
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
  std::vector<Move> given_;  // by this rank
  std::vector<Move> boxes_;
  Index bytes_ = 0;
  std::map<std::string, const Parameter*> parameters_;
  mutable std::vector<std::byte> copy_;  // of a share on a device that the host cannot read
  mutable const PlacedTensor* copied_ = nullptr;
};

}  // namespace gyr
