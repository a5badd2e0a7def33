// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/expert_load.hpp"

namespace gyr {

void ExpertLoads::allocate(Arena& arena) {
  Index size = 0;
  for (const ExpertLoad& load : all_) size += load.experts;
  if (size == 0) return;
  chosen_ = arena.tensor<double>(size);
  double* at = chosen_.data();
  for (ExpertLoad& load : all_) load.chosen = Tensor1<double>(at, load.experts), at += load.experts;
}

}  // namespace gyr
