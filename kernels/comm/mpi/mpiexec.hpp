// SPDX-License-Identifier: BSD-3-Clause
// What starts ranks of the MPI that this program was built with. jobscripts/launcher.sh finds the same where there is no program yet.
#pragma once

#include <string>
#include <vector>

namespace gyr {

struct Mpiexec {
  std::vector<std::string> names;    // the first of them in PATH
  std::vector<std::string> options;  // so that it starts more ranks than cores, also as root, as in a container
};
Mpiexec mpiexec();

}  // namespace gyr
