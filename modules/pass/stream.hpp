// SPDX-License-Identifier: BSD-3-Clause
// Rows of the residual stream on the tensor-parallel ranks: every rank has all of them, or a shard (sequence
// parallelism; Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022). With shards,
// row-wise work such as norms and sums is not repeated on every rank, and an all-gather and a reduce-scatter replace
// each all-reduce.
#pragma once

#include <utility>

#include "kernels/ops/elementwise.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

// All rows of a tensor of which this rank keeps `mine`: in scratch, or `mine` itself without sequence parallelism.
template <class T>
class AllRows {
 public:
  AllRows(Pass& a, const char* name, Tensor2<T> mine)
      : pass_(a), mine_(mine), padded_(a.stream.split() ? a.scratch<T>(name, a.stream.padded(), Index(mine.extent(1))) : mine) {}

  Tensor2<T> rows() const { return gyr::rows(padded_, 0, pass_.stream.rows); }
  // Starts the all-gather that fills rows() with the rows of every rank. Only the first call communicates.
  Event start_gather() {
    if (!pass_.stream.split() || std::exchange(gathered_, true)) return {};
    return pass_.tensor.full().start_all_gather<T>(pass_.dev, flat(mine_), flat(padded_));
  }
  Tensor2<T> gather() {
    start_gather().device_wait(pass_.dev);
    return rows();
  }
  // Reduce-scatter, or all-reduce without sequence parallelism: mine = this rank's rows of the sum of rows() over all
  // ranks.
  Event start_reduce() const {
    if (!pass_.stream.split()) return pass_.tensor.full().start_all_reduce(pass_.dev, flat(mine_));
    const Index rows = pass_.stream.rows;
    if (const Index padding = pass_.stream.padded() - rows; padding > 0) fill<T>(pass_.dev, flat(gyr::rows(padded_, rows, padding)), 0);
    return pass_.tensor.full().start_reduce_scatter<T>(pass_.dev, flat(padded_), flat(mine_));
  }
  void reduce() const { start_reduce().device_wait(pass_.dev); }

 private:
  Pass& pass_;
  Tensor2<T> mine_, padded_;
  bool gathered_ = false;
};

}  // namespace gyr
