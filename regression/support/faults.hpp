// SPDX-License-Identifier: BSD-3-Clause
// Trials of a run that is disturbed: a signal in some phase, a fault of some rank, damage to what it has stored. Each is drawn from a seed, and
// ends with the bits of a run that was left alone.
#pragma once

#include "regression/support/material.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing {

// A signal at a moment drawn from the seed: while the run starts, takes a step, validates, saves, or ends. It saves and ends with code 75
// (or was done), and goes on with the same bits.
void signal_trial(unsigned seed);

enum class Ranks { three_to_eight, eight };

// One fault of this kind ("kill", "stop", "hang", "exit", "slow", "nan", "bitflip") on a rank and at a step drawn from the seed, under
// gyrfalcon run: it is noticed in time, the rank is named, and losses and weights are the undisturbed ones.
// Returns the longest time between two steps, in seconds: that of noticing, starting again and loading.
double fault_trial(const std::string& kind, unsigned seed, Ranks = Ranks::three_to_eight);

// A run of eight ranks of which one dies at a step drawn from the seed, and whose newest checkpoint then has a shard with a flipped bit, cut
// short, or removed: the next attempt names the file and goes on from the checkpoint before it.
enum class Damage { flipped_bit, cut_short, removed };
void damage_trial(Damage, unsigned seed);

// The disk of one of eight ranks is full after a number of bytes drawn from the seed: the run ends with one error, and what was saved serves.
void full_disk_trial(unsigned seed);

}  // namespace gyr::testing
