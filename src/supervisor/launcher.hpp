// SPDX-License-Identifier: BSD-3-Clause
// How ranks are started.
#pragma once

#include <string>
#include <vector>

namespace gyr {

using Words = std::vector<std::string>;

// What launchers that are known are told to do with the other ranks: to leave them alone, so that those who look on can compare them with the
// one that died, or what they do by themselves.
enum class WhenOneDies { others_stay, all_end };

// `program` on so many ranks. launcher: empty (the mpiexec of this program's MPI), srun, none (one rank, no launcher), or
// words that take "-n RANKS PROGRAM" after them. Exit::usage where there is none.
Words launch_command(const std::string& launcher, int ranks, const Words& program, WhenOneDies = WhenOneDies::others_stay);

}  // namespace gyr
