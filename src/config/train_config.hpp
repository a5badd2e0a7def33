// SPDX-License-Identifier: BSD-3-Clause
// Settings of training steps: deck keys train.*. Most parts of a run read some of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device/device.hpp"
#include "modules/settings/fp8_recipe.hpp"
#include "modules/settings/settings.hpp"

namespace gyr {

struct BatchStep {
  double tokens;  // consumed tokens from which this batch applies
  Index batch;    // global batch, in sequences
};

// Action if the loss or gradient of a step is not finite: end the run, skip the update, or roll back to the last
// checkpoint and skip the samples.
enum class NonFinite { stop, skip, rollback };

struct TrainConfig {
  std::string init_from, precision;
  bool branch = false;  // true: go on from the checkpoint init_from with its optimizer state, step and data position
  bool new_head;        // true: draw a new head instead of using that of init_from
  Fp8Recipe fp8 = Fp8Recipe::none;
  GemmLibrary gemm_library = GemmLibrary::automatic;
  Index steps, global_batch_size, micro_batch_size, seq_length;
  std::vector<BatchStep> ramp;
  Index eval_every, eval_batches, log_every;
  std::uint64_t seed;
  double walltime;  // time limit of the job in seconds; 0: no limit
  NonFinite non_finite;
  Index max_skips;       // maximum number of consecutive skipped batches
  double spike;          // loss limit, as a multiple of the mean of recent losses; 0: no limit
  Index check_replicas;  // steps between comparisons of the data-parallel replicas; 0: never

  // The ramp, or the constant global batch as its only entry.
  std::vector<BatchStep> batches() const { return ramp.empty() ? std::vector<BatchStep>{{0, global_batch_size}} : ramp; }
};

// Number of steps, and of sequences of a step, that follow from other settings.
struct PlannedSteps {
  Index steps, global_batch_size;
};
// `precision`, `seq_length`: defaults of these keys. Exit::config if the deck sets other numbers than the planned ones.
TrainConfig read_train(Section&, const std::string& precision, Index seq_length, const std::optional<PlannedSteps>& planned = {});
// Reads only train.init_from.
std::string read_init_from(Section& train);
bool read_branch(Section& train);         // reads only train.branch
bool is_of_start(std::string_view path);  // true for the keys that only a new run reads: those of its initial state
// Exit::config if a branch of a checkpoint of step `saved` has no step left to train.
void check_branch(const TrainConfig&, std::int64_t saved);

}  // namespace gyr
