// SPDX-License-Identifier: BSD-3-Clause
// How this process was launched, according to the environment variables that mpiexec and srun set.
#pragma once

namespace gyr {

// Rank of this process according to its launcher; -1 if no variable of a launcher is set. In a batch script of Slurm it
// is 0.
int rank_from_environment();

// True if mpiexec, or srun with an MPI plug-in, has launched this process as a rank. Batch scripts do not count.
bool is_launched();

// True if a launcher has started several processes and this is one of them. A process of a batch script or of the shell
// that salloc opens is none. With PMIX_RANK alone, rank 0 looks like a single process.
bool is_one_of_several();

// Exit::device if a launcher has started several processes, each of which is the only rank of its MPI_COMM_WORLD. This
// happens if the launcher belongs to another MPI library. A process of a batch script or of the shell that salloc opens
// is accepted, whatever the size of the allocation. `ranks`: size of MPI_COMM_WORLD.
void require_own_launcher(int ranks);

}  // namespace gyr
