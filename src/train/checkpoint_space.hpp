// SPDX-License-Identifier: BSD-3-Clause
// Disk space for the checkpoints of a run, checked before its first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/config/run_config.hpp"

namespace gyr {

// Number of checkpoints that the run will save after step `done`; with checkpoint.keep_best the largest possible one.
Index saves_after(const RunConfig&, Index done);
// Upper bound of the checkpoints that will exist at once in addition to those of the steps `present`, from step `done` to
// the end. A checkpoint is complete before an older one is removed.
Index most_new_checkpoints(const RunConfig&, Index done, const std::vector<std::int64_t>& present);

// Compares the free space of the output folder with the run's checkpoints of `bytes` each. Exit::io if none fits. Returns
// a warning if fewer fit than the run will keep, otherwise "". `done` and `present` as above.
std::string check_checkpoint_space(const RunConfig&, Index bytes, Index done, const std::vector<std::int64_t>& present);
// The same for the checkpoints in the output folder (without them if the run starts over), and prints the warning. `deck`:
// text that each checkpoint contains.
void report_checkpoint_space(const RunConfig&, const std::string& deck, const Layout&, bool start_over, Index done);

}  // namespace gyr
