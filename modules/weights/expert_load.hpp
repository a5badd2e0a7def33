// SPDX-License-Identifier: BSD-3-Clause
// Expert load: how often the experts of each layer are chosen in a step, counted over the tokens of all micro-batches
// without padding.
#pragma once

#include <deque>
#include <string>

#include "kernels/base/tensor.hpp"
#include "kernels/device/arena.hpp"

namespace gyr {

class Parameter;

struct ExpertLoad {
  std::string layer;
  Index experts;
  Parameter* bias;              // bias of the router scores for load balancing, updated from these counts; null: none
  Tensor1<double> chosen = {};  // (experts) number of times that each expert was chosen, counted in each backward; not allocated without training
  double dropped = 0;           // choices of this rank's rows that exceeded the experts' capacity, counted on the host
};

class ExpertLoads {
 public:
  // Registers the counters of a layer. The reference remains valid.
  ExpertLoad& add(std::string layer, Index experts, Parameter* bias) { return all_.emplace_back(std::move(layer), experts, bias); }
  void allocate(Arena&);
  void clear_dropped() {
    for (ExpertLoad& load : all_) load.dropped = 0;
  }

  const std::deque<ExpertLoad>& all() const { return all_; }
  Tensor1<double> chosen() const { return chosen_; }  // choice counts of all experts, layer after layer

 private:
  std::deque<ExpertLoad> all_;
  Tensor1<double> chosen_;
};

}  // namespace gyr
