// SPDX-License-Identifier: BSD-3-Clause
// A folder of checkpoints, step_00000010.h5 and so on, in which a name ending in .h5 appears only when its file is whole and on disk.
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/communicator.hpp"
#include "src/note.hpp"

namespace gyr {

std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step);

// The checkpoint of the highest step below `before` that opens as a complete one, if any. Reads headers, not tensors.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder, const Note& note = {},
                                                       std::int64_t before = std::numeric_limits<std::int64_t>::max());
// The same for all ranks of `world`: its first rank looks, the others hear. Collective.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder, Communicator& world, const Note& note = {},
                                                       std::int64_t before = std::numeric_limits<std::int64_t>::max());

// Steps whose file bears its final name, in rising order.
std::vector<std::int64_t> committed_steps(const std::filesystem::path& folder);

// Removes checkpoints up to `step` but for the last `keep`; later ones, left by a run that went further, stay. 0 keeps all.
// Returns what could not be removed and why.
std::vector<std::string> keep_last(const std::filesystem::path& folder, std::int64_t step, int keep);

// Exit::io naming both numbers unless the file system of `folder` has `bytes` to give.
void require_space(const std::filesystem::path& folder, Index bytes);

}  // namespace gyr
