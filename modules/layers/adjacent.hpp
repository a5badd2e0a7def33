// SPDX-License-Identifier: BSD-3-Clause
// Weights that are adjacent in memory, so that one GEMM serves all of them and their outputs are side by side.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "modules/weights/parameter.hpp"

namespace gyr {

using Adjacent = std::initializer_list<const Parameter*>;  // null entries are skipped

inline const Parameter& first_of(Adjacent weights) {
  const auto there = std::find_if(weights.begin(), weights.end(), [](const Parameter* w) { return w != nullptr; });
  ensure(there != weights.end(), "the projection has no weights");
  return **there;
}
inline Index outputs_of(Adjacent weights) {
  Index rows = 0;
  for (const Parameter* w : weights) rows += w ? w->rows() : 0;
  return rows;
}

}  // namespace gyr
