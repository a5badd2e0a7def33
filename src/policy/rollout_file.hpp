// SPDX-License-Identifier: BSD-3-Clause
// HDF5 file of the rollouts of an iteration, OUTPUT/rollouts/iteration_K.h5. A run that stops within an iteration continues with these
// answers, because its weights are no longer those that wrote them. With B answers of M tokens in all, N of them in the answers
// themselves, and R rewards:
//   prompt, sample, begin, end (B)   number of the prompt, number of the answer, first token of the answer, reason of its end (TextEnd)
//   offset (B + 1)                   first token of each rollout in tokens (M)
//   said, old, reference (N)         log-probabilities of the answer tokens; old and reference may be absent
//   reward (B), rewards (B, R)       weighted sum, and the parts, whose names are the attribute reward_names; NaN: none
#pragma once

#include <filesystem>

#include "src/policy/rollout.hpp"

namespace gyr {

std::filesystem::path rollout_path(const std::filesystem::path& output, std::int64_t iteration);
// The same of answers that are not rewarded yet: OUTPUT/rollouts/ahead_K.h5 (rl.staleness).
std::filesystem::path ahead_path(const std::filesystem::path& output, std::int64_t iteration);

// Exit::io. Replaces the file only when it is complete.
void write_rollouts(const std::filesystem::path&, const Rollouts&);
// Exit::missing, Exit::data if the file is damaged or has contradictory lengths.
Rollouts read_rollouts(const std::filesystem::path&);

}  // namespace gyr
