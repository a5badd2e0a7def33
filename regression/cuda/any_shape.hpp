// SPDX-License-Identifier: BSD-3-Clause
// Compares bf16 GEMM kernels with plain loops in double, and checks that mistakes in them are found.
#pragma once

#include <random>

#include "regression/cuda/machines.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing {

// multiply(dev, a, b, c) computes c = a b' for random matrices with k up to 8 `packs`, on machines of every order.
template <class Multiply>
void expect_gemms_of_any_shape(Index packs, const Multiply& multiply) {
  const std::uint64_t seed = cuda::seed_of_draws();
  SCOPED_TRACE(fmt::format("GYR_SEED={}", seed));
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 4; ++trial) {
    const Index m = 1 + Index(random() % 150), n = 1 + Index(random() % 150), k = 8 * (1 + Index(random() % std::uint64_t(packs)));
    SCOPED_TRACE(fmt::format("({},{}) by ({},{})'", m, k, n, k));
    Workbench bench;
    const auto a = bench.normal<bf16>(m, k), b = bench.normal<bf16>(n, k);
    std::vector<double> want;
    for (Index r = 0; r < m; ++r)
      for (Index c = 0; c < n; ++c) {
        double sum = 0;
        for (Index i = 0; i < k; ++i) sum += double(a(r, i)) * double(b(c, i));
        want.push_back(sum);
      }
    for (const cuda::Machine& machine : cuda::machines_of_every_order) {
      const cuda::With with(machine);
      const auto c = bench.zeros<float>(m, n);
      multiply(bench.dev, a, b, c);
      EXPECT_LE(difference(values_of(c), want), 1e-6);
    }
  }
}

// multiply(dev, a, b, c) makes a mistake. It must be found in every order, with a message that contains `found`.
template <class Multiply>
void expect_found_in_every_order(Index k, const std::string& found, const Multiply& multiply) {
  Workbench bench;
  const auto a = bench.normal<bf16>(64, k), b = bench.normal<bf16>(64, k);
  for (const cuda::Order order : {cuda::Order::forward, cuda::Order::backward, cuda::Order::random}) {
    const cuda::With with(cuda::Machine{order, 1, true});
    std::string complaint;
    try {
      multiply(bench.dev, a, b, bench.zeros<float>(64, 64));
    } catch (const cuda::Violation& v) {
      complaint = v.what();
    }
    EXPECT_NE(complaint.find(found), std::string::npos) << "order " << int(order) << ": " << complaint;
  }
}

}  // namespace gyr::testing
