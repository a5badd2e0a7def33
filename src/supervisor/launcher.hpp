// SPDX-License-Identifier: BSD-3-Clause
// Command line that starts the ranks.
#pragma once

#include <string>
#include <vector>

namespace gyr {

using Words = std::vector<std::string>;

// Fate of the other ranks when one dies. peers_stay: options make srun and Hydra keep them running, so that their
// heartbeats can be compared with that of the dead rank. all_end: the launcher's default.
enum class WhenOneDies { peers_stay, all_end };

// Command that runs `program` on `ranks` ranks. `launcher`: empty (the mpiexec of this program's MPI), srun, none (one
// rank without a launcher), or a command that accepts "-n RANKS PROGRAM". Exit::usage if there is no launcher, or if an
// mpiexec without a scheduler and a list of hosts would start more than 64 ranks per processor of this machine.
// Exit::device if the options of an mpiexec or srun already give a number of ranks.
Words launch_command(const std::string& launcher, int ranks, const Words& program, WhenOneDies = WhenOneDies::peers_stay);

}  // namespace gyr
