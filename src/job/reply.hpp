// SPDX-License-Identifier: BSD-3-Clause
// Runs another program, such as scontrol, and returns its output.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gyr {

struct Reply {
  int code = 0;  // exit code, or 128 + signal if a signal ended it
  std::string out, err;
};

// Starts a program from PATH in its own process group, with default signals and these file actions. Returns 0 and sets
// `pid`, or returns the error. The call is posix_spawn, which does not copy a process in which MPI has pinned memory.
int spawn(const std::vector<std::string>& command, const posix_spawn_file_actions_t& files, pid_t& pid);

// Runs a program from PATH without input. nullopt if there is no such program, or if it does not end within `seconds`;
// its process group is then killed. Only about the first 64 KiB of each output are kept.
std::optional<Reply> reply_of(const std::vector<std::string>& command, double seconds);

}  // namespace gyr
