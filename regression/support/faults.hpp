// SPDX-License-Identifier: BSD-3-Clause
// Fault injection trials: a signal in some phase, a fault of one rank, or damage to stored files. Each trial is drawn
// from a seed. After recovery, the run must end bitwise identical to an undisturbed run.
#pragma once

#include "regression/support/material.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing {

// Sends a signal at a random moment: during start, a step, validation, a save, or the end. The run must save and exit
// with code 75 (or have finished already), and resume bitwise identically.
void signal_trial(unsigned seed);

enum class Ranks { three_to_eight, eight };

// Injects a fault of this kind ("kill", "stop", "hang", "exit", "slow", "nan", "bitflip") on a random rank at a random
// step, under gyrfalcon run. The fault must be detected in time and the rank named. Losses and weights must equal those
// of an undisturbed run. Returns the longest time between two steps in seconds, which includes detection, restart and
// loading.
double fault_trial(const std::string& kind, unsigned seed, Ranks = Ranks::three_to_eight);

// A run of eight ranks in which one rank dies at a random step. Then a shard of the newest checkpoint gets a flipped
// bit, is truncated, or is removed. The next attempt must name the file and resume from the previous checkpoint.
enum class Damage { flipped_bit, truncated, removed };
void damage_trial(Damage, unsigned seed);

// The disk of one of eight ranks is full after a random number of bytes. The run must end with one error, and the
// checkpoints saved before must be usable.
void full_disk_trial(unsigned seed);

}  // namespace gyr::testing
