// SPDX-License-Identifier: BSD-3-Clause
// Compares grouped GEMMs in bf16 with the same GEMMs in double.
#pragma once

#include <numeric>

#include "kernels/ops/grouped_gemm.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing {

struct GroupedCase {
  std::vector<Index> rows;  // rows of each group
  Index n, k, even;

  Index all() const { return std::accumulate(rows.begin(), rows.end(), Index(0)); }
  std::string name() const {
    std::string text = fmt::format("({},{}), even {}, rows", n, k, even);
    for (const Index r : rows) text += fmt::format(" {}", r);
    return text;
  }
};

// Results of grouped GEMMs: y, dx, and the stacked dw of all groups.
template <class T>
struct GroupedGemms {
  Tensor2<T> y, dx;
  Tensor2<Acc<T>> dw;

  GroupedGemms(Workbench& bench, const GroupedCase& c) {
    const Index groups = Index(c.rows.size());
    const auto x = bench.normal<T>(c.all(), c.k), dy = bench.normal<T>(c.all(), c.n), w = bench.normal<T>(groups * c.n, c.k);
    dw = bench.normal<Acc<T>>(groups * c.n, c.k), y = bench.zeros<T>(c.all(), c.n), dx = bench.zeros<T>(c.all(), c.k);
    const auto count = bench.zeros<std::int32_t>(groups);
    std::copy(c.rows.begin(), c.rows.end(), count.data());
    const RowGroups rows{count, c.even, c.all()};
    GroupMatrices<const T> weights{{}, c.n, c.k};
    GroupMatrices<Acc<T>> gradients{{}, c.n, c.k};
    for (Index g = 0; g < groups; ++g) weights.data.push_back(w.data() + g * c.n * c.k), gradients.data.push_back(dw.data() + g * c.n * c.k);
    grouped_linear<T>(bench.dev, rows, x, weights, y);
    grouped_linear_backward_input<T>(bench.dev, rows, dy, weights, dx);
    grouped_linear_backward_weight<T>(bench.dev, rows, dy, x, gradients);
    bench.dev.fence();
  }
};

inline void expect_bf16_follows_double(const GroupedCase& c) {
  SCOPED_TRACE(c.name());
  Workbench of_bf16, of_double;
  const GroupedGemms<bf16> found(of_bf16, c);
  const GroupedGemms<double> wanted(of_double, c);
  EXPECT_LE(difference(values_of(found.y), values_of(wanted.y)), tolerance<bf16>);
  EXPECT_LE(difference(values_of(found.dx), values_of(wanted.dx)), tolerance<bf16>);
  EXPECT_LE(difference(values_of(found.dw), values_of(wanted.dw)), tolerance<float>);
}

}  // namespace gyr::testing
