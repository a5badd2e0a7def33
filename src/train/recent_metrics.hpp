// SPDX-License-Identifier: BSD-3-Clause
// Reads the last lines of metrics.jsonl: losses and validations of the steps just before a run resumes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/comm/communicator.hpp"

namespace gyr {

struct RecentMetrics {
  std::vector<double> losses;  // losses of applied steps up to `step`, oldest first
  bool validated = false;      // true if the metrics file has a validation of this step
};

// Returns at most `most` losses, from the last MiB of the file. Of a step that was taken several times the last loss
// counts. Steps that were not applied are left out.
RecentMetrics recent_metrics(const std::filesystem::path& file, Index step, std::size_t most);

// Run id and recent metrics. The first rank reads them and sends them to all ranks; only its `run` argument counts.
// Collective.
struct Past {
  std::string run;
  RecentMetrics metrics;
};
Past past_of(Communicator& world, const std::string& run, const std::filesystem::path& file, Index step, std::size_t most);

}  // namespace gyr
