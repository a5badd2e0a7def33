// SPDX-License-Identifier: BSD-3-Clause
// Orders from the ranks that train to those that only generate (rl.generate.separate).
#pragma once

#include <mpi.h>

#include "kernels/comm/communicator.hpp"
#include "kernels/comm/mpi/transport.hpp"
#include "src/engine/generate/request.hpp"
#include "src/parallel/mesh.hpp"
#include "src/watch/peer_progress.hpp"

namespace gyr {

struct GenerationOrder {
  // make: make the generator. write: write answers to the requests. hand_over: give these answers to the ranks that train.
  // stop: the run ends.
  enum class Kind { make, write, hand_over, stop };

  Kind kind = Kind::stop;
  bool update = false;                 // write: receive the present weights before
  Index step = 0;                      // write: the step that the run is about to take
  std::vector<Request> requests = {};  // write
};

class GenerationOrders {
 public:
  // Collective over `world`, the ranks of the run in order. `output`: folder of the run.
  GenerationOrders(Mesh training, Mesh generating, const std::filesystem::path& output, MPI_Comm world, ProgressRecord&);
  ~GenerationOrders();  // orders the others to stop, also when an error ends the training

  // Called by every rank that trains; the first of them sends the order.
  void send(const GenerationOrder&);
  // Called by the ranks that generate. Waits as long as the ranks that train make progress, and without limit before they have begun.
  GenerationOrder receive();

 private:
  const Mesh training_, generating_;
  ProgressRecord& progress_record_;
  PeerProgress peers_;  // of the ranks that train
  Communicator world_;
  Device device_;
};

}  // namespace gyr
