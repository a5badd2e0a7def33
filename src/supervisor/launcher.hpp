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
  int rank = -1, pid = 0;  // either may be all that is said: rank -1, pid 0 are not
  std::string host;
  std::string how;      // "KILLED BY SIGNAL: 9 (Killed)"
  bool by_signal = false;
};

// Reads a launcher's output line by line (MPICH, Slurm, Open MPI) and keeps the first death it tells of.
class Obituaries {
 public:
  void line(const std::string&);
  const std::optional<Obituary>& first() const { return first_; }

 private:
  std::optional<Obituary> first_;
  bool how_follows_ = false;
};

}  // namespace gyr
