// SPDX-License-Identifier: BSD-3-Clause
// How ranks are started, and what the programs that start them say of one that has died.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gyr {

using Words = std::vector<std::string>;

// `program` on so many ranks. launcher: empty (the first of mpiexec.hydra, mpiexec.mpich, mpiexec), srun, none (one rank, no launcher), or
// words that take "-n RANKS PROGRAM" after them. Launchers that are known are told to leave the other ranks alone when one dies: all end
// within milliseconds otherwise, nobody can tell which was first, and MPICH names one that was not. Exit::usage where there is none.
Words launch_command(const std::string& launcher, int ranks, const Words& program);

struct Obituary {
  int rank = -1;
  std::string host;
  std::string how;  // "Killed", "signal 9 (Killed)", "Exited with exit code 3"
  bool by_signal = false;
};

// The death that a line of a launcher's output tells of (Slurm, Open MPI; MPICH's is not to be believed), if any.
std::optional<Obituary> obituary(const std::string& line);

}  // namespace gyr
