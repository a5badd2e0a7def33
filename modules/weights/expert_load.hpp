// SPDX-License-Identifier: BSD-3-Clause
// How often the experts of each layer are chosen in a step, by the tokens of all its micro-batches, padding left out.
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
  Parameter* bias;              // of the router's scores, which this may move; null: there is none
  Tensor1<double> chosen = {};  // (experts), counted in each backward; without memory where nothing is trained
  double dropped = 0;           // choices of this rank's rows that experts have had no room for, on the host
};

class ExpertLoads {
 public:
  // Declares what a layer counts: it stays where it is.
  ExpertLoad& add(std::string layer, Index experts, Parameter* bias) { return all_.emplace_back(std::move(layer), experts, bias); }
  void allocate(Arena&);
  void clear_dropped() {
    for (ExpertLoad& load : all_) load.dropped = 0;
  }

  const std::deque<ExpertLoad>& all() const { return all_; }
  Tensor1<double> chosen() const { return chosen_; }  // of all, one behind the other

 private:
  std::deque<ExpertLoad> all_;
  Tensor1<double> chosen_;
};

}  // namespace gyr
