// SPDX-License-Identifier: BSD-3-Clause
// Orders from the ranks that train to those that only generate (rl.generate.separate).
#pragma once

#include <mpi.h>

#include "kernels/comm/communicator.hpp"
#include "kernels/comm/mpi/transport.hpp"
#include "src/engine/generate/request.hpp"
#include "src/parallel/mesh.hpp"

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
  // Collective over `world`, the ranks of the run in order.
  GenerationOrders(Mesh training, Mesh generating, MPI_Comm world, ProgressRecord&);
  ~GenerationOrders();  // orders the others to stop, also when an error ends the training

  // Called by every rank that trains; the first of them sends the order.
  void send(const GenerationOrder&);
  // Called by the ranks that generate. Waits without a time limit, because the watchdog of the ranks that train detects their hangs.
  GenerationOrder receive();

 private:
  const Mesh training_, generating_;
  ProgressRecord& progress_record_;
  Communicator world_;
  Device device_;
};

}  // namespace gyr
