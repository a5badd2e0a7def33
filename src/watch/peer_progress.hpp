// SPDX-License-Identifier: BSD-3-Clause
// Progress of other ranks, by their heartbeats. A rank that waits long for the work of others counts as hanging only if they do not
// make progress either.
#pragma once

#include <filesystem>
#include <vector>

#include "src/watch/heartbeat.hpp"

namespace gyr {

class PeerProgress {
 public:
  // `output`: folder of the run.
  PeerProgress(std::filesystem::path output, std::vector<int> ranks) : output_(std::move(output)), ranks_(std::move(ranks)) {}

  // True if one of the ranks has made progress since the last call that returned true, or if none of their heartbeats can be read.
  bool moved();

 private:
  const std::filesystem::path output_;
  const std::vector<int> ranks_;
  std::uint64_t last_ = 0;  // sum of the ranks' progress counters
};

}  // namespace gyr
