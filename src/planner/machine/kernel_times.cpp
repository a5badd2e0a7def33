// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/kernel_times.hpp"

#include <algorithm>
#include <string_view>

#include "kernels/device/host_copies.hpp"
#include "src/planner/machine/profile.hpp"

namespace gyr {

namespace {

bool is_gemm(std::string_view kernel) { return kernel.ends_with("gemm"); }
bool is_attention(std::string_view kernel) { return kernel.starts_with("attention"); }

bool by_flops(std::string_view kernel, const Cluster& c) { return is_gemm(kernel) || (c.device.fused && is_attention(kernel)); }

double modelled(const LaunchShape& s, DType precision, const Cluster& c) {
  const double peak = c.device.gemm_rate(precision), passes = s.bytes / (c.fit.memory * c.device.memory_bandwidth);
  if (s.kernel == "gemm") return std::max(s.flops / (c.fit.gemms * peak), passes);
  if (by_flops(s.kernel, c)) return s.flops / (c.fit.fused * peak);
  return passes;
}

}  // namespace

double seconds_of(const LaunchCounts& launches, DType precision, const Cluster& cluster, const Profile* profile) {
  double sum = 0;
  for (const auto& [shape, count] : launches) sum += double(count.calls) * seconds_of(shape, precision, cluster, profile);
  return sum;
}

double seconds_of(const LaunchShape& shape, DType precision, const Cluster& cluster, const Profile* profile) {
  if (is_copy(shape.kernel)) return 0;
  const double measured = profile ? profile->seconds_of(shape, precision) : 0;
  return measured > 0 ? measured : modelled(shape, precision, cluster);
}

CopyCounts copies_of(const LaunchCounts& launches) {
  CopyCounts copies;
  for (const auto& [shape, count] : launches)
    if (is_copy(shape.kernel)) copies.calls += count.calls, copies.bytes += double(count.calls) * shape.bytes;
  return copies;
}

double seconds_of_copies(double bytes, const Cluster& cluster) {
  require(cluster.host.bandwidth > 0, Exit::config,
          "activation.policy offloads activations to the host, but '{}' has no host bandwidth; add host.bandwidth to its cluster description",
          cluster.name);
  return bytes / cluster.host.bandwidth;
}

double compute_hiding_copies(double compute, Index calls, Index parts, const Cluster& cluster) {
  return cluster.host.overlaps ? compute * double(std::min(calls, parts)) / double(parts) : 0;
}

KernelBound bound_of(const LaunchCounts& launches, DType precision, const Cluster& cluster) {
  const double peak = cluster.device.gemm_rate(precision), bandwidth = cluster.fit.memory * cluster.device.memory_bandwidth;
  KernelBound floor;
  for (const auto& [shape, count] : launches) {
    if (is_copy(shape.kernel)) continue;
    const double calls = double(count.calls);
    if (shape.kernel == "gemm") floor.gemms += calls * shape.flops / (cluster.fit.gemms * peak);
    else if (by_flops(shape.kernel, cluster)) floor.fused += calls * shape.flops / (cluster.fit.fused * peak);
    else floor.passes += calls * shape.bytes / bandwidth;
  }
  return floor;
}

}  // namespace gyr
