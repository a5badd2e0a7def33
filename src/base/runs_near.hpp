// SPDX-License-Identifier: BSD-3-Clause
// Remedy for messages about a folder that is not the output folder of a run.
#pragma once

#include <filesystem>
#include <string>

namespace gyr {

// The run that the folder belongs to, or those of its subfolders: "; runs below out: out/my". A run has a metrics.jsonl.
// Empty if there is none.
std::string runs_near(const std::filesystem::path& folder);

}  // namespace gyr
