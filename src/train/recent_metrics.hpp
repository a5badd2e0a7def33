// SPDX-License-Identifier: BSD-3-Clause
// What the last lines of a metrics.jsonl say about the steps just before a run goes on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/comm/communicator.hpp"

namespace gyr {

struct RecentMetrics {
  std::vector<double> losses;  // of applied steps up to `step`, oldest first
  bool validated = false;      // `step` has a validation
};

// At most `most` losses, from the file's last megabyte; of a step that was taken several times, the last. Steps not applied are left out.
RecentMetrics recent_metrics(const std::filesystem::path& file, Index step, std::size_t most);

// What the first rank alone can read, for all of them: which run this is, as `run` tells there, and its recent metrics. Collective.
struct Past {
  std::string run;
  RecentMetrics metrics;
};
Past past_of(Communicator& world, const std::string& run, const std::filesystem::path& file, Index step, std::size_t most);

}  // namespace gyr
