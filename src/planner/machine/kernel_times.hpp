// SPDX-License-Identifier: BSD-3-Clause
// Seconds of what a device computes. Where a profile has measured a kernel on this machine, they come from there (profile.hpp); else
//   a product      max(flops / (products * peak), bytes / (memory * bandwidth))
//   of attention or a scan, and where attention's tiles stay on the chip all of attention   flops / (fused * peak)
//   anything else  bytes / (memory * bandwidth)
// with the fitted constants of the cluster.
#pragma once

#include "kernels/device/device.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

class Profile;

double seconds_of(const LaunchCounts&, DType precision, const Cluster&, const Profile* = nullptr);
// Of one; copies take none.
double seconds_of(const LaunchShape&, DType precision, const Cluster&, const Profile*);

// Copies to and from the host among them, which count in neither of these.
struct CopyCounts {
  Index calls = 0;
  double bytes = 0;
};
CopyCounts copies_of(const LaunchCounts&);
// Seconds of copies. Exit::config where the cluster does not say how fast they are.
double seconds_of_copies(double bytes, const Cluster&);
// Of so many seconds of computation in a task of so many parts, those that its copies may be made beside. Those of one layer are made beside another
// one: beside as many parts as there are layers that are copied.
double compute_hiding_copies(double compute, Index calls, Index parts, const Cluster&);

// Of the same launches, what is sure: products by their flops alone, passes by their bytes alone.
struct KernelBound {
  double products = 0, fused = 0, passes = 0;  // seconds
};
KernelBound bound_of(const LaunchCounts&, DType precision, const Cluster&);

}  // namespace gyr
