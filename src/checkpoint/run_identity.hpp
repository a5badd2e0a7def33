// SPDX-License-Identifier: BSD-3-Clause
// Identity of the run that owns an output folder. A run draws a random id at its start. OUTPUT/run.json and all its
// checkpoints carry this id. --resume uses only checkpoints with the id in run.json.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/checkpoint/header.hpp"

namespace gyr {

struct RunIdentity {
  std::string id;                    // random run id, 16 hexadecimal digits
  std::int64_t unmarked_until = -1;  // highest step of checkpoints without an id (from older versions) that belong to this run; -1: none

  static RunIdentity drawn();
  bool owns(const CheckpointHeader& h) const { return h.run.empty() ? h.step <= unmarked_until : h.run == id; }
};

// Identity of the run in OUTPUT: from run.json, or else from the newest complete checkpoint up to the one that `latest`
// names (any checkpoint if `latest` names none). If that checkpoint has no id, a new id is drawn, and checkpoints
// without an id up to its step belong to it. nullopt if there is no checkpoint either. Exit::io; Exit::data if run.json
// is damaged.
std::optional<RunIdentity> identity_in(const std::filesystem::path& output);
void write_identity(const std::filesystem::path& output, const RunIdentity&);  // writes run.json; Exit::io

// Step of the run's newest complete checkpoint; 0 if there is none.
std::int64_t newest_step_of_run(const std::filesystem::path& output);

// Moves a run's files from its output folder to OUTPUT/set_aside/ID, or ID.2, ID.3 and so on if that exists, so that a
// new run can start. Returns the new location, or nullopt if there was nothing to move. If it is killed half-way, the
// folder belongs to the old run with all its checkpoints, or to no run. Exit::io.
std::optional<std::filesystem::path> set_aside(const std::filesystem::path& output);

}  // namespace gyr
