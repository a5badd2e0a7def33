// SPDX-License-Identifier: BSD-3-Clause
// Seconds of kernels on a device. If a profile has measured a kernel on this machine, its time is used (profile.hpp). Otherwise the roofline is:
//   GEMM                                    max(flops / (gemms * peak), bytes / (memory * bandwidth))
//   GEMMs inside a scan, fused attention    flops / (fused * peak)
//   any other kernel                        bytes / (memory * bandwidth)
// gemms, memory and fused are the fitted constants of the cluster (Cluster::Fit).
#pragma once

#include "kernels/device/device.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

class Profile;

double seconds_of(const LaunchCounts&, DType precision, const Cluster&, const Profile* = nullptr);
// Seconds of one launch; 0 for a copy to or from the host.
double seconds_of(const LaunchShape&, DType precision, const Cluster&, const Profile*);

// Number and bytes of the copies between device and host among these launches. seconds_of() ignores them.
struct CopyCounts {
  Index calls = 0;
  double bytes = 0;
};
CopyCounts copies_of(const LaunchCounts&);
// Seconds of copies between device and host. Throws Exit::config if the cluster gives no host bandwidth.
double seconds_of_copies(double bytes, const Cluster&);
// Seconds of a task's computation that its host copies can overlap with. The task computes `parts` parts (layers) and
// makes `calls` host copies. The copies of a layer overlap with the computation of another layer, so at most `calls`
// parts hide copies. The result is 0 if host copies do not overlap with computation (host.beside).
double compute_hiding_copies(double compute, Index calls, Index parts, const Cluster&);

// Lower bound of the same launches: GEMMs by their flops only, memory-bound kernels by their bytes only.
struct KernelBound {
  double gemms = 0, fused = 0, passes = 0;  // seconds of GEMMs, of fused attention and scan, and of memory-bound kernels
};
KernelBound bound_of(const LaunchCounts&, DType precision, const Cluster&);

}  // namespace gyr
