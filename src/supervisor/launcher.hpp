// SPDX-License-Identifier: BSD-3-Clause
// How ranks are started.
#pragma once

#include <string>
#include <vector>

namespace gyr {

using Words = std::vector<std::string>;

// `program` on so many ranks. launcher: empty (the mpiexec of this program's MPI), srun, none (one rank, no launcher), or
// words that take "-n RANKS PROGRAM" after them. Launchers that are known are told to leave the other ranks alone when one dies, so that
// those who look on can compare them with it. Exit::usage where there is none.
Words launch_command(const std::string& launcher, int ranks, const Words& program);

}  // namespace gyr
