// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/comm/mpi/mpiexec.hpp"

#include <mpi.h>
#include <unistd.h>

namespace gyr {

Mpiexec mpiexec() {
#ifdef OPEN_MPI
  Mpiexec found{{"mpiexec.openmpi", "mpiexec"}, {"--oversubscribe"}};
  if (geteuid() == 0) found.options.emplace_back("--allow-run-as-root");
  return found;
#else
  return {{"mpiexec.hydra", "mpiexec.mpich", "mpiexec"}, {}};
#endif
}

}  // namespace gyr
