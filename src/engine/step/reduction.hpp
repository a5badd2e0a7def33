// SPDX-License-Identifier: BSD-3-Clause
// How the gradients of a rank become those of the whole batch and of whole weights: summed in buckets over the data axis while the backward
// still runs, then over ranks of the tensor axis that hold the same part of a weight or have worked on other rows with it, then over the two ends of
// a pipeline that share a matrix. Where the optimizer is cut, each rank gets the sum of its own part alone.
#pragma once

#include <array>
#include <vector>

#include "src/engine/model/stage.hpp"

namespace gyr {

class GradientReduction {
 public:
  GradientReduction(Stage& stage, Grid& grid) : parameters_(stage.parameters()), stage_(stage), grid_(grid) {}

  // Gradients travel over the data axis in this scalar; in another than theirs, from memory beside them.
  void reduce_in_type(DType, Arena& memory);

  // Before the first backward of a step.
  void begin(Device&);
  // A bucket's gradients begin at zero in a buffer, once what was reduced there has been kept.
  void clear(Device&, int bucket, int buffer);
  // Begins the sum of a bucket over the data axis; nothing where it holds no gradients. `buffer`: where they lie, -1: in their own place.
  void start(Device&, int bucket, int buffer);
  // Lets what is under way advance.
  void poll();
  // Waits for all that has begun, and then does all other sums: the order does not matter for sums.
  void finish(Device&);

 private:
  struct InFlight {
    std::vector<Event> events;
    int bucket, buffer;
  };
  using Sections = std::vector<Parameters::Distribution>;
  bool cut() const { return parameters_.shard() >= Shard::gradients; }
  bool takes_turns(int bucket) const { return cut() && !parameters_.buckets()[bucket].kept_whole; }
  // Ranks over which a section is summed.
  Communicator& ranks_of(const Parameters::Distribution& section) const { return grid_.replicas(section.of_experts); }
  // A bucket's sections as they travel.
  Sections travelling(int bucket, int buffer) const;
  void convert_parts(Device&, const Sections& from, AnyTensor Parameters::Distribution::*part, const Sections& to) const;
  void end(Device&, InFlight&);

  Parameters& parameters_;
  Stage& stage_;
  Grid& grid_;
  std::vector<AnyTensor> copies_;               // in which buckets travel, each in its own; empty: in their own memory
  std::array<AnyTensor, 2> buffers_of_copies_;  // of those that take turns
  std::vector<InFlight> in_flight_;
};

}  // namespace gyr
