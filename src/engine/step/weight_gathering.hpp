// SPDX-License-Identifier: BSD-3-Clause
// How weights come back whole from the ranks that keep or update parts of them: bucket by bucket, while computation goes on.
#pragma once

#include <exception>
#include <map>
#include <vector>

#include "src/engine/model/stage.hpp"

namespace gyr {

class WeightGathering {
 public:
  WeightGathering(Device& dev, Stage& stage, Grid& grid) : device_(dev), parameters_(stage.parameters()), grid_(grid) {}

  // Unless an error ends the run, in which others may never send.
  ~WeightGathering() {
    if (std::uncaught_exceptions() == 0) wait();
  }
  WeightGathering(const WeightGathering&) = delete;
  WeightGathering& operator=(const WeightGathering&) = delete;

  // Begins to gather a bucket, which is computed with there from now on. `buffer`: -1: in its own place.
  void start(int bucket, int buffer);
  // The device has the bucket before what it is given next.
  void wait(int bucket);
  void wait();  // all that has begun
  // Lets what is under way advance.
  void poll();

 private:
  Device& device_;
  Parameters& parameters_;
  Grid& grid_;
  std::map<int, std::vector<Event>> in_flight_;  // by bucket, of those that have begun: there may be thousands
};

}  // namespace gyr
