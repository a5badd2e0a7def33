// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/comm/mpi/launched.hpp"

#include <mpi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Environment variables of a launcher: number of processes ("": it sets none), rank of this process.
struct Launcher {
  const char *name, *size, *rank;
};
constexpr Launcher hydra{"the mpiexec of MPICH or Intel MPI, or srun --mpi=pmi2,", "PMI_SIZE", "PMI_RANK"},
    open_mpi{"the mpiexec of Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    mvapich{"the mpiexec of MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"}, srun{"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    pmix{"a launcher with PMIx, such as prterun or srun --mpi=pmix,", "", "PMIX_RANK"};
constexpr Launcher launchers[] = {hydra, open_mpi, mvapich, srun, pmix};

#ifdef OPEN_MPI
constexpr const Launcher& linked_launcher = open_mpi;
constexpr const char *library = "Open MPI", *remedy = "the mpiexec of Open MPI, or with srun --mpi=pmix";
#else
constexpr const Launcher& linked_launcher = hydra;
constexpr const char *library = "MPICH", *remedy = "mpiexec.hydra, or with srun --mpi=pmi2";
#endif

// Integer in an environment variable; -1 if there is none.
int number_in(const char* variable) {
  const char* const given = std::getenv(variable);
  const std::string_view text = given ? given : "";
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? number : -1;
}

bool is_srun(const Launcher& l) { return std::string_view(l.rank) == srun.rank; }

// A variable that shows that a launcher has started several processes.
struct Sign {
  const Launcher* launcher;  // null: there is no such variable
  const char* variable;
  int number;
};

Sign sign_of_several() {
  for (const Launcher& l : launchers) {
    // Batch scripts inherit SLURM_PROCID=0 and have no step. The shell that salloc opens runs in a step whose reserved
    // number does not fit an int.
    if (is_srun(l) && number_in("SLURM_STEP_ID") < 0) continue;
    for (const auto& [variable, lone] : {std::pair(l.size, 1), std::pair(l.rank, 0)})  // lone: value for a single process
      if (const int number = number_in(variable); number > lone) return {&l, variable, number};
  }
  return {nullptr, "", 0};
}

}  // namespace

int rank_from_environment() {
  for (const char* name : {hydra.rank, pmix.rank, open_mpi.rank, mvapich.rank, srun.rank})
    if (const int rank = number_in(name); rank >= 0) return rank;
  return -1;
}

bool is_launched() {
  return std::any_of(std::begin(launchers), std::end(launchers), [](const Launcher& l) { return !is_srun(l) && std::getenv(l.rank); });
}

bool is_one_of_several() { return sign_of_several().launcher != nullptr; }

void require_own_launcher(int ranks) {
  if (ranks > 1 || number_in(linked_launcher.size) == 1) return;
  const auto [launcher, variable, number] = sign_of_several();
  if (!launcher) return;
  require(std::string_view(launcher->rank) != linked_launcher.rank, Exit::device,
          "{}={} says that several processes were started, but MPI sees one rank in each of them, because their process manager does not "
          "answer; start the ranks with {}. For independent processes, unset {}",
          variable, number, remedy, variable);
  fail(Exit::device,
       "{} has started several processes ({}={}), but MPI sees one rank in each of them: this program is linked with {}, which this launcher "
       "does not serve, so each process would be a single-rank run; start the ranks with {}. For independent processes, unset {}",
       launcher->name, variable, number, library, remedy, variable);
}

}  // namespace gyr
