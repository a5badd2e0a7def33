// SPDX-License-Identifier: BSD-3-Clause
// activation.alpha: the share of rows of which what products make is swapped to the host, the others being made again (MEMO, Zhao et al. 2024). What
// a share a costs is linear in it, task by task: with c its seconds of computation, of which the part h has copies beside it, b the bytes it copies,
// and B the bandwidth of copies, a task waits for none while
//   b0 + a (b1 - b0) <= B h (c0 + a (c1 - c0))
// where 0 and 1 mean at such shares, and the host has room while m0 + a (m1 - m0) <= M. What takes least is at the end of a bound: of these, the
// share is taken at which a step of such tasks is the shortest.
#pragma once

#include "src/config/run_config.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

class Profile;
class StageRuns;

struct OffloadFraction {
  double alpha = 0;    // a multiple of 1 / alpha_steps
  double seconds = 0;  // of a step
  double most = 0;     // that the host has room for
};
inline constexpr int alpha_steps = 256;

// For a run whose policy is memo. Exit::config where the host has no room for any. `runs`: dry runs that others have made, or will use.
OffloadFraction best_share(RunConfig, const Layout&, const Cluster&, const Profile* = nullptr, StageRuns* runs = nullptr);

}  // namespace gyr
