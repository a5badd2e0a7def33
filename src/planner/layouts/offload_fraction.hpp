// SPDX-License-Identifier: BSD-3-Clause
// Choice of activation.alpha: the fraction a of the rows whose GEMM outputs are offloaded to the host. The other rows are recomputed (MEMO, Zhao et
// al. 2024). The costs of every task are linear in a. No host copy of a task is exposed while
//   b0 + a (b1 - b0) <= B h (c0 + a (c1 - c0))
// with c the seconds of computation of the task, h the fraction of c that can overlap with copies, b the bytes copied, B the copy bandwidth, and the
// indices 0 and 1 for the values at a = 0 and a = 1. The host has enough memory while m0 + a (m1 - m0) <= M, with m the offloaded bytes and M the
// host memory. The optimum is at the end of one of these ranges. Among these candidates, the one with the shortest predicted step is taken.
#pragma once

#include "src/config/run_config.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

class Profile;
class StageRuns;

struct OffloadFraction {
  double alpha = 0;    // chosen fraction, a multiple of 1 / alpha_steps
  double seconds = 0;  // predicted seconds per step
  double most = 0;     // largest alpha for which the offloaded activations fit in host memory
};
inline constexpr int alpha_steps = 256;

// Best alpha for a run with activation.policy = memo. Throws Exit::config if even alpha = 0 does not fit in host
// memory. `runs`: cache of dry runs to reuse and extend.
OffloadFraction best_fraction(RunConfig, const Layout&, const Cluster&, const Profile* = nullptr, StageRuns* runs = nullptr);

}  // namespace gyr
