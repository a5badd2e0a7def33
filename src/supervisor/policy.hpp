// SPDX-License-Identifier: BSD-3-Clause
// Decides if a run is restarted, and on how many ranks, from its attempts so far.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// One attempt: a start of the run until its end.
struct Attempt {
  int number = 0, ranks = 0;
  Index from = 0, to = 0, reached = 0;  // step of the newest checkpoint before and after; current step at the end
  double begun = 0, seconds = 0;        // Unix time of its start; duration
  int code = 0;
  std::string state;    // done | stopped | lost | hung | stale | failed | died | refused (before it began in the output folder)
  int rank = -1;        // rank at fault; -1: none
  std::string host;     // host of the rank at fault
  int hosts = 1;        // number of hosts with ranks
  std::string culprit;  // message that names the rank at fault
  std::vector<std::string> slow;

  bool lost_a_rank() const { return rank >= 0 && state != "failed" && state != "refused"; }
  bool made_progress() const { return to > from; }
};

struct Policy {
  int ranks = 1;        // number of ranks of the full run
  int model_ranks = 1;  // ranks per model replica (one index of the data axis)
  int spares = -1;      // lost ranks that can be replaced; -1: any number
  Index max_restarts = 10;
  // Largest data axis of at most `most` that divides every batch; 0 if there is none.
  std::function<int(int most)> data_axis;
};

struct Decision {
  bool go_on = false;
  int ranks = 0;    // number of ranks of the next attempt
  std::string why;  // reason for giving up or for another number of ranks; empty otherwise
};

// There is no restart after: a run that is done or was stopped on request; an exit code that a restart would repeat
// (Exit::usage, data, missing, config); max_restarts restarts; two attempts in a row without a new checkpoint, unless
// the data axis shrinks; a loss after which no data axis divides the batches. A lost rank is replaced while there are
// spares. After that, the data axis shrinks to the model replicas that the remaining ranks can form. If two attempts in
// a row lose a rank on the same host, there are other hosts, and the second attempt saved nothing, the next attempt
// uses a smaller data axis. After any attempt that saved a checkpoint, the next one uses all available ranks.
Decision decide(const std::vector<Attempt>&, const Policy&);

// True for exit codes that a restart would repeat.
bool is_final(int code);

}  // namespace gyr
