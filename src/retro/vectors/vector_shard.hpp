// SPDX-License-Identifier: BSD-3-Clause
// Search among the vectors of the chunks that one rank holds, exact or approximate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/retro/bm25.hpp"

namespace gyr::retro {

class VectorShard {
 public:
  virtual ~VectorShard() = default;
  // The best `most` chunks for each query, in any order. `queries` (queries, width). Scores are negative squared distances.
  virtual std::vector<std::vector<Candidate>> search(std::span<const float> queries, std::int64_t most) const = 0;
};

}  // namespace gyr::retro
