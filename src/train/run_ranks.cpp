// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/run_ranks.hpp"

#include "src/config/generation_ranks.hpp"
#include "src/train/generation_worker.hpp"

namespace gyr {

namespace {

Identity identity_of(MPI_Comm world, int attempt) {
  Identity me{.attempt = attempt};
  MPI_Comm_rank(world, &me.rank), MPI_Comm_size(world, &me.ranks);
  return me;
}

// A communicator that ends with this object.
struct Subset {
  MPI_Comm comm;

  Subset(const Mesh& mesh, MPI_Comm world) : comm(communicator_of(mesh, world)) {}
  ~Subset() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
  Subset(const Subset&) = delete;
  Subset& operator=(const Subset&) = delete;
};

}  // namespace

void on_run_ranks(const RunConfig& run, int attempt, MPI_Comm world, const std::function<void(const RunRanks&, Watch&)>& train) {
  const Identity me = identity_of(world, attempt);
  Watch watch(run.watch, me, [world](int code) { MPI_Abort(world, code); });
  const WaitPolicy patience = wait_policy_of(world);
  const Mesh training = training_ranks(run, me.ranks);
  if (training.size() == me.ranks) return train({world, world, me, patience}, watch);
  const Subset subset(training, world);
  GenerationOrders orders(training, generating_ranks(run, me.ranks), run.output, world, watch.progress_record());
  if (subset.comm == MPI_COMM_NULL) generate_on_orders(run, me, orders, world, watch);
  else train({world, subset.comm, me, patience, &orders}, watch);
}

}  // namespace gyr
