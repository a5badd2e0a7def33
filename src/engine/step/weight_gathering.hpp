// SPDX-License-Identifier: BSD-3-Clause
// All-gather of weights from the ranks that keep or update shards of them (ZeRO), bucket by bucket, overlapped with
// computation.
#pragma once

#include <exception>
#include <map>
#include <vector>

#include "src/engine/model/stage.hpp"

namespace gyr {

class WeightGathering {
 public:
  WeightGathering(Device& dev, Stage& stage, Grid& grid) : device_(dev), parameters_(stage.parameters()), grid_(grid) {}

  // Waits for all-gathers in flight, except when an error ends the run: other ranks may then never send.
  ~WeightGathering() {
    if (std::uncaught_exceptions() == 0) wait();
  }
  WeightGathering(const WeightGathering&) = delete;
  WeightGathering& operator=(const WeightGathering&) = delete;

  // Starts the all-gather of a bucket. Its weights are used there from now on. `buffer`: which of the two shared
  // buffers receives it; -1: the bucket's own memory.
  void start(int bucket, int buffer);
  // Device work enqueued from now on starts after the bucket has arrived.
  void wait(int bucket);
  void wait();  // waits for the all-gathers of all buckets in flight
  // Lets all-gathers in flight progress.
  void poll();

 private:
  Device& device_;
  Parameters& parameters_;
  Grid& grid_;
  std::map<int, std::vector<Event>> in_flight_;  // by bucket, only those in flight: a model may have thousands of buckets
};

}  // namespace gyr
