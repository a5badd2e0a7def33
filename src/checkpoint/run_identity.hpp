// SPDX-License-Identifier: BSD-3-Clause
// Which run an output folder belongs to. A run draws an id when it begins; OUTPUT/run.json and all its checkpoints carry it, and a resumed
// run goes on from those alone, whatever others lie beside them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/checkpoint/header.hpp"

namespace gyr {

struct RunIdentity {
  std::string id;                    // 16 hexadecimal digits
  std::int64_t unmarked_until = -1;  // checkpoints without an id, of older programs, are the run's own up to this step

  static RunIdentity drawn();
  bool owns(const CheckpointHeader& h) const { return h.run.empty() ? h.step <= unmarked_until : h.run == id; }
};

// Of the run that has left its checkpoints in OUTPUT/checkpoints: as run.json says or, where an older program wrote none, that of the
// checkpoint that `latest` names, with those before it. None where nothing is there. Exit::io; Exit::data where run.json is damaged.
std::optional<RunIdentity> identity_in(const std::filesystem::path& output);
void write_identity(const std::filesystem::path& output, const RunIdentity&);  // Exit::io

// The step of its newest whole checkpoint, 0 without one.
std::int64_t newest_step_of_run(const std::filesystem::path& output);

// Moves what a run has left in its output folder to OUTPUT/set_aside/ID, so that another one may begin; returns where, if there was any.
// Killed on the way, the folder is that of the old run with all its checkpoints, or of none. Exit::io.
std::optional<std::filesystem::path> set_aside(const std::filesystem::path& output);

}  // namespace gyr
