// SPDX-License-Identifier: BSD-3-Clause
// How the gradients of a rank become those of the whole batch and of whole weights: summed in buckets over the data axis while the backward
// still runs, then over ranks of the tensor axis that hold the same part of a weight or have worked on other rows with it, then over the two ends of
// a pipeline that share a matrix.
#pragma once

#include "src/engine/stage.hpp"

namespace gyr {

class GradientReduction {
 public:
  // Buckets are ranges of parts of at least `bucket_bytes`, gathered in the order in which backward completes them.
  GradientReduction(Stage&, Grid&, Index bucket_bytes);

  const GradientParts& parts() const { return parts_; }
  // Begins the sum of a bucket over the data axis; nothing where it holds no gradients.
  Event start(Device&, int bucket);
  // All other sums, once the buckets are whole: the order does not matter for sums.
  void finish(Device&);

 private:
  Stage& stage_;
  Grid& grid_;
  GradientParts parts_;
  std::vector<Span> ranges_;  // of the flat gradients: each bucket's
};

}  // namespace gyr
