// SPDX-License-Identifier: BSD-3-Clause
// Folder of checkpoints step_00000010/ and so on. A name without .tmp appears only once its content is complete and on
// disk. Single-file checkpoints of format 1.x, step_00000010.h5, are found as well.
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
// The same path, or the file of format 1.x if only that exists.
std::filesystem::path existing_path(const std::filesystem::path& folder, std::int64_t step);

// Complete checkpoint with the highest step below `before`, if any; with `run`, only a checkpoint of that run. Reads
// manifests and file sizes, no tensors. `note` receives each skipped checkpoint with the reason.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder, const Note& note = {},
                                                       std::int64_t before = std::numeric_limits<std::int64_t>::max(),
                                                       const RunIdentity* run = nullptr);
// The same for all ranks of `world`: the first rank searches the folder and broadcasts the result. Only the first rank
// needs `run`. Collective.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder, Communicator& world, const Note& note = {},
                                                       std::int64_t before = std::numeric_limits<std::int64_t>::max(),
                                                       const RunIdentity* run = nullptr);

// Steps of all checkpoints with a final name, ascending.
std::vector<std::int64_t> committed_steps(const std::filesystem::path& folder);

// The checkpoint with the lowest validation loss of a run (checkpoint.keep_best). The file `best` next to the checkpoints
// records it: its name in the first line, its validation loss in the second.
inline constexpr const char* best_name = "best";
struct BestCheckpoint {
  std::int64_t step = 0;
  double loss = 0;  // mean validation loss, natural logarithm
};
// nullopt if nothing is recorded, or if the recorded checkpoint does not exist.
std::optional<BestCheckpoint> best_checkpoint(const std::filesystem::path& folder);
void write_best(const std::filesystem::path& folder, const BestCheckpoint&);  // Exit::io

// Checkpoints to keep: the newest `keep` (0: all), and each whose step is a multiple of `keep_every` (0: no others).
struct Retention {
  int keep = 0;
  std::int64_t keep_every = 0;
};
// Removes checkpoints up to `step` that Retention does not keep. Later steps, from a run that went further, are kept,
// as are checkpoints of another run than `run` and the best one. Returns the paths that could not be removed, with reasons.
std::vector<std::string> prune(const std::filesystem::path& folder, std::int64_t step, const Retention&, const std::string& run = "");

// Removes the unfinished checkpoints (step_N.tmp) of killed saves, and nothing else.
void remove_unfinished(const std::filesystem::path& folder);

// Writes README.md with this text, which explains the folder to users, unless the file exists. Exit::io.
void write_readme(const std::filesystem::path& folder, std::string_view text);
void describe_folder(const std::filesystem::path& folder);  // writes README.md of a checkpoint folder

}  // namespace gyr
