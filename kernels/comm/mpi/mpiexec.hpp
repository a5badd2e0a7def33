// SPDX-License-Identifier: BSD-3-Clause
// The mpiexec command of the MPI that this program was built with. jobscripts/launcher.sh finds the same command
// without the program.
#pragma once

#include <string>
#include <vector>

namespace gyr {

struct Mpiexec {
  std::vector<std::string> names;    // candidates; the first one that is in PATH is used
  std::vector<std::string> options;  // options that allow more ranks than cores, and root, as in a container
};
Mpiexec mpiexec();

}  // namespace gyr
