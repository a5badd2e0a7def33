// SPDX-License-Identifier: BSD-3-Clause
// A folder of checkpoints, step_00000010/ and so on, in which a name without .tmp appears only when everything in it is whole and on disk.
// Checkpoints of format 1.x, files step_00000010.h5, are found as well.
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/comm/communicator.hpp"
#include "src/base/note.hpp"

namespace gyr {

struct RunIdentity;

std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step);
// The same, or the file of format 1.x where only that exists.
std::filesystem::path existing_path(const std::filesystem::path& folder, std::int64_t step);

// The checkpoint of the highest step below `before` that opens as a complete one, if any; with `run` only one of its own. Reads manifests
// and looks at the sizes of files, not at tensors.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder, const Note& note = {},
                                                       std::int64_t before = std::numeric_limits<std::int64_t>::max(),
                                                       const RunIdentity* run = nullptr);
// The same for all ranks of `world`: the first rank reads the folder and tells the others; it alone needs to know the run. Collective.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder, Communicator& world, const Note& note = {},
                                                       std::int64_t before = std::numeric_limits<std::int64_t>::max(),
                                                       const RunIdentity* run = nullptr);

// Steps that bear their final name, in rising order.
std::vector<std::int64_t> committed_steps(const std::filesystem::path& folder);

// Which checkpoints stay: the newest `keep` (0: all), and each whose step is a multiple of `keep_every` (0: none besides).
struct Retention {
  int keep = 0;
  std::int64_t keep_every = 0;
};
// Removes checkpoints up to `step` but for those that stay; later ones, left by a run that went further, stay too, and so do those that
// belong to another run than `run`. Returns what could not be removed and why.
std::vector<std::string> prune(const std::filesystem::path& folder, std::int64_t step, const Retention&, const std::string& run = "");

// Removes what killed saves have left: the names that a save gives to what is not finished, and no others.
void remove_unfinished(const std::filesystem::path& folder);

// Exit::io naming both numbers unless the file system of `folder` has `bytes` to give.
void require_space(const std::filesystem::path& folder, Index bytes);

// Tells people how to read what lies in the folder: README.md, unless there is one. Exit::io.
void write_readme(const std::filesystem::path& folder, std::string_view text);
void describe_folder(const std::filesystem::path& folder);  // of checkpoints

}  // namespace gyr
