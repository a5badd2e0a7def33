// SPDX-License-Identifier: BSD-3-Clause
// Part of the time of a long training that is useful, if failures end the job and restarts repeat steps. The failures are a
// Poisson process while the job runs. A save begins after every S seconds of training, blocks training for B, and is complete
// W later. A failure costs the restart time R, and all work since the last save that is complete.
//   f  failures per second     P = S + B
//   useful part = S exp(-f W) / ((exp(f P) - 1) (1 / f + R))
// The numerator is the expected work that the saves of an attempt keep: S times the sum over k > 0 of exp(-f (k P + W)), the
// probability that save k is complete before the failure.
#pragma once

namespace gyr {

struct Saves {
  double every = 0;   // seconds of training between saves (S)
  double blocks = 0;  // seconds that a save blocks training (B)
  double writes = 0;  // seconds until a save is complete, after it no longer blocks (W)
};

// `rate`: failures per second (f). `restart`: seconds (R).
double useful_part(double rate, double restart, const Saves&);
// Seconds of training between saves with the largest useful part; at least 1 s and at least the time of a save.
double best_interval(double rate, double restart, Saves);

}  // namespace gyr
