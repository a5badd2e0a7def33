// SPDX-License-Identifier: BSD-3-Clause
// Trials of a run that is disturbed: a signal in some phase, or a fault on some rank. Each is drawn from a seed, and ends with the bits of a
// run that was left alone.
#pragma once

#include "regression/material.hpp"

namespace gyr::testing {

struct Count {
  int tried = 0, survived = 0;
};

// A signal at a moment drawn from the seed: while the run starts, takes a step, validates, saves, or ends. It saves and ends with code 75
// (or was done), and goes on with the same bits.
void signal_trial(unsigned seed, Count&);

// One fault of this kind ("kill", "stop", "hang", "exit", "slow", "nan", "bitflip") on a rank and at a step drawn from the seed, under
// gyrfalcon run: it is noticed in time, the rank is named, and the losses are the undisturbed ones.
void fault_trial(const std::string& kind, unsigned seed, Count&);

}  // namespace gyr::testing
