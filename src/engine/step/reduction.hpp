// SPDX-License-Identifier: BSD-3-Clause
// Gradient reduction. Gradients are summed in buckets over the data-parallel ranks while the backward still runs. Then
// come tensor-parallel ranks that hold copies of the same part of a weight, or that processed other rows with it
// (sequence parallelism). Last come the two ends of a pipeline, which share a tied embedding. With a sharded optimizer
// (ZeRO) each rank receives only its own shard (reduce-scatter).
#pragma once

#include <array>
#include <vector>

#include "src/engine/model/stage.hpp"

namespace gyr {

class GradientReduction {
 public:
  GradientReduction(Stage& stage, Grid& grid) : parameters_(stage.parameters()), stage_(stage), grid_(grid) {}

  // Sets the type in which gradients are reduced over the data axis. If it differs from theirs, copies are allocated
  // from `memory`.
  void reduce_in_type(DType, Arena& memory);

  // Sets gradients to zero before the first backward of a step.
  void begin(Device&);
  // Sets a bucket's gradients in a buffer to zero, after the result of the buffer's previous bucket has been kept.
  void clear(Device&, int bucket, int buffer);
  // Starts the reduction of a bucket over the data axis; nothing if it has no gradients. `buffer`: which of the two
  // shared buffers holds them; -1: the bucket's own memory.
  void start(Device&, int bucket, int buffer);
  // Lets reductions in flight progress.
  void poll();
  // Waits for all reductions in flight, then does all other sums; the order does not matter for sums.
  void finish(Device&);

 private:
  struct InFlight {
    std::vector<Event> events;
    int bucket, buffer;
  };
  using Sections = std::vector<Parameters::Distribution>;
  bool shards_gradients() const { return parameters_.shard() >= Shard::gradients; }
  bool shares_buffers(int bucket) const { return shards_gradients() && !parameters_.buckets()[bucket].kept_unsharded; }
  // Ranks over which a section is summed.
  Communicator& ranks_of(const Parameters::Distribution& section) const { return grid_.replicas(section.of_experts); }
  // Sections of a bucket in the type of the reduction.
  Sections travelling(int bucket, int buffer) const;
  void convert_parts(Device&, const Sections& from, AnyTensor Parameters::Distribution::*part, const Sections& to) const;
  void end(Device&, InFlight&);

  Parameters& parameters_;
  Stage& stage_;
  Grid& grid_;
  std::vector<AnyTensor> copies_;               // reduction copies of buckets, each in its own memory; empty: gradients are reduced in place
  std::array<AnyTensor, 2> buffers_of_copies_;  // reduction copies of buckets that share two buffers
  std::vector<InFlight> in_flight_;
};

}  // namespace gyr
