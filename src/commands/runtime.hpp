// SPDX-License-Identifier: BSD-3-Clause
// Lifetime of one MPI process: MPI and the compute threads (Kokkos) are started once, and all ranks agree on one exit
// code.
#pragma once

#include <mpi.h>

#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/comm/mpi/node.hpp"

namespace gyr {

class Runtime {
 public:
  Runtime();  // starts MPI
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Starts the compute threads. Exit::device if this is the only rank although a launcher has started several processes;
  // Exit::usage if an environment variable has an impossible thread count. Collective.
  void start();

  // Advice on the number of threads on this rank's machine, as a line of output; empty if there is none.
  std::string thread_advice() const;

  MPI_Comm world() const { return MPI_COMM_WORLD; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The time of rank 0 in seconds since 1970, or the value of SOURCE_DATE_EPOCH. Collective.
  std::time_t shared_time() const;
  // The text that `make` returns on rank 0, where alone it runs. Its Error is thrown on every rank. Collective.
  std::string shared_text(const std::function<std::string()>& make) const;

 private:
  int rank_ = 0, ranks_ = 1;
  bool started_ = false;
  Crowd crowd_{};  // processes and processors of this machine
};

// Warning if the ranks of a machine have more threads than processors; otherwise empty. `threads`: number per rank.
std::string thread_advice(const Crowd&, int threads);

enum class LastLine { always, of_failures, never };

// Runs `body` on every rank and returns the exit code of the process. An Error is printed once, by the lowest rank that
// failed. A failed rank waits 5 seconds for the exit codes of all ranks. If some rank does not join, for example
// because it waits for the failed one, the failed rank prints its own error and aborts the job with its code.
// `last_line`: the output ends with RUN OK, RUN STOPPED or RUN FAILED, printed by rank 0 or by the aborting rank. RUN OK
// is for commands that run something: a plan or an evaluation ends with it only if it fails.
int run_on_all_ranks(const std::function<void(Runtime&)>& body, LastLine last_line);

}  // namespace gyr
