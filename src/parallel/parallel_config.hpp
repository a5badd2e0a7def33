// SPDX-License-Identifier: BSD-3-Clause
// The grid as a deck asks for it: keys parallel.*.
#pragma once

#include <vector>

#include "modules/axis.hpp"
#include "modules/settings.hpp"

namespace gyr {

struct ParallelConfig {
  int data, pipeline, tensor;  // data 0: whatever the ranks leave
  std::vector<Axis> order;     // of the axes, outermost first
  std::vector<int> permutation;
  std::vector<Index> layers;  // per stage; empty: cut by cost
  Index bucket_bytes;
};

ParallelConfig read_parallel(Section&);

}  // namespace gyr
