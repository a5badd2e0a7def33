// SPDX-License-Identifier: BSD-3-Clause
// Parallel execution of independent pieces of work. A lane is a device for one thread, with a part of the scratch.
// Results do not depend on the number of lanes. A build without threads has no lanes, and runs the pieces one after the
// other on the device itself.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "kernels/kokkos/rows.hpp"

namespace gyr {

constexpr Index lane_unit = 256;  // bytes: alignment of the scratch of each lane

// Dry run: counts the work of all pieces, and reserves scratch for each lane as large as the largest piece needs.
template <class Body>
void dry_run_lanes(Device& dev, Index lanes, Index count, const Body& body, bool equal) {
  Device lane(true, 0);
  lane.is_lane = true;
  lane.library = dev.library;
  for (Index i = 0; i < (equal ? 1 : count); ++i) body(lane, i);
  dev.join(lane, equal ? count : 1, 0);
  const Scope scope(dev.scratch);
  dev.scratch.push(lanes * ceil_div(lane.scratch.high_water(), lane_unit) * lane_unit);
}

template <class Body>
void run_lanes(Device& dev, const char* kernel, Index lanes, Index count, const Body& body) {
  const Index begin = dev.scratch.used(), bytes = (dev.scratch.capacity() - begin) / lanes / lane_unit * lane_unit;
  std::vector<Device> all;
  std::vector<std::exception_ptr> failures(lanes);
  dev.lane_gemm_caches.resize(std::max<std::size_t>(dev.lane_gemm_caches.size(), lanes));
  for (Index l = 0; l < lanes; ++l) {
    Device& lane = all.emplace_back(false, dev.scratch.part(Memory::scratch, begin + l * bytes, bytes));
    lane.is_lane = true;
    lane.library = dev.library;
    lane.times_launches = dev.times_launches;
    lane.gemm_cache = dev.lane_gemm_caches[l];
  }
  const auto start = std::chrono::steady_clock::now();
  Kokkos::parallel_for(kernel, Kokkos::RangePolicy<Space, Kokkos::IndexType<Index>>(Space(), 0, lanes), [&](const Index l) {
    use_single_threaded_blas();
    try {
      for (Index i = l; i < count; i += lanes) body(all[l], i);
    } catch (...) {
      failures[l] = std::current_exception();
    }
  });
  const auto end = std::chrono::steady_clock::now();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  if (dev.recorder()) dev.recorder()->kernel(kernel, moment_of(start), moment_of(end));
  double seconds = 0;
  for (const Device& lane : all)
    for (const Work& w : lane.work()) seconds += w.seconds;
  Index most = 0;
  for (Index l = 0; l < lanes; ++l) {
    dev.join(all[l], 1, seconds > 0 ? std::chrono::duration<double>(end - start).count() / seconds : 0);
    dev.lane_gemm_caches[l] = all[l].gemm_cache;
    most = std::max(most, all[l].scratch.high_water());
  }
  const Scope scope(dev.scratch);
  dev.scratch.push(lanes * ceil_div(most, lane_unit) * lane_unit);  // records the scratch that the lanes used
}

// Calls body(lane, i) for i = 0 ... count - 1. equal: true if all calls record equal work, so that a dry run makes only
// one.
template <class Body>
void for_lanes(Device& dev, const char* kernel, Index count, const Body& body, bool equal = true) {
  if constexpr (threaded) {
    if (count > 0 && !dev.is_lane) {
      const Index lanes = std::min<Index>(count, Space().concurrency());
      if (dev.dry_run()) return dry_run_lanes(dev, lanes, count, body, equal);
      return run_lanes(dev, kernel, lanes, count, body);
    }
  }
  for_equal(
      dev, count, [&](Index i) { body(dev, i); }, equal);
}

}  // namespace gyr
