// SPDX-License-Identifier: BSD-3-Clause
// What a step is and how many there are: deck keys train.*. Every room of a run reads some of them.
#pragma once

#include <string>
#include <vector>

#include "kernels/device/device.hpp"
#include "modules/settings/settings.hpp"

namespace gyr {

struct BatchStep {
  double tokens;  // from this many consumed tokens on ...
  Index batch;    // ... a step takes this many sequences
};

// What a step does whose loss or gradient is not finite: end the run, leave the update out, or go back to the last checkpoint and
// leave its samples out.
enum class NonFinite { stop, skip, rollback };

struct TrainConfig {
  std::string init_from, precision;
  bool new_head;  // in place of that of init_from
  GemmLibrary products = GemmLibrary::automatic;
  Index steps, global_batch_size, micro_batch_size, seq_length;
  std::vector<BatchStep> ramp;
  Index eval_every, eval_batches, log_every;
  std::uint64_t seed;
  double walltime;  // seconds, 0: without end
  NonFinite non_finite;
  Index max_skips;       // in a row
  double spike;          // times the mean of recent losses, 0: any
  Index check_replicas;  // steps between, 0: never

  // The ramp, or the one batch of all steps.
  std::vector<BatchStep> batches() const { return ramp.empty() ? std::vector<BatchStep>{{0, global_batch_size}} : ramp; }
};

// `precision`, `seq_length`: where the deck says nothing.
TrainConfig read_train(Section&, const std::string& precision, Index seq_length);
// train.init_from alone.
std::string read_init_from(Section& train);

}  // namespace gyr
