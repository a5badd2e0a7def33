// SPDX-License-Identifier: BSD-3-Clause
// Paths of files and folders in the output folder of a run.
#pragma once

#include <filesystem>

#include "src/config/run_config.hpp"

namespace gyr {

inline std::filesystem::path path_in(const RunConfig& run, const char* name) { return std::filesystem::path(run.output) / name; }
inline std::filesystem::path checkpoints_of(const RunConfig& run) { return path_in(run, "checkpoints"); }
inline std::filesystem::path dumps_of(const RunConfig& run) { return path_in(run, "dumps"); }
inline std::filesystem::path traces_of(const RunConfig& run) { return path_in(run, "trace"); }
inline std::filesystem::path metrics_of(const RunConfig& run) { return path_in(run, "metrics.jsonl"); }

}  // namespace gyr
