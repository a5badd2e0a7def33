// SPDX-License-Identifier: BSD-3-Clause
// A product of tensor cores is a product, and the mistakes that such kernels are made with are found.
#include "regression/cuda/machines.hpp"
#include "regression/cuda/product.hpp"
#include "regression/tensors.hpp"

using namespace gyr;
using namespace gyr::cuda;
using namespace gyr::cuda::testing;

namespace {

void multiply(Device& dev, Mistake mistake, Tensor2<const bf16> a, Tensor2<const bf16> b, Tensor2<float> c) {
  const Index blocks = ceil_div(c.extent(0), tile) * ceil_div(c.extent(1), tile);
  launch(dev, "product", {blocks, threads, 4 * tile_numbers * int(sizeof(bf16))}, product, mistake, a, b, c);
}

const std::vector<Machine> machines = {{Order::forward, 1, false}, {Order::backward, 1, true}, {Order::random, 1, true}, {Order::random, 2, false}};

}  // namespace

TEST(tensor_cores, multiply_matrices_of_any_shape_in_every_order) {
  const std::uint64_t seed = seed_of_draws();
  SCOPED_TRACE(fmt::format("GYR_SEED={}", seed));
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 4; ++trial) {
    const Index m = 1 + Index(random() % 150), n = 1 + Index(random() % 150), k = 8 * (1 + Index(random() % 20));  // rows are copied in packs
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
    for (const Machine& machine : machines) {
      const With with(machine);
      const auto c = bench.zeros<float>(m, n);
      multiply(bench.dev, Mistake::none, a, b, c);
      EXPECT_LE(difference(numbers(c), want), 1e-6);
    }
  }
}

TEST(tensor_cores, mistakes_are_found) {
  const struct {
    Mistake mistake;
    const char* found;
  } mistakes[] = {{Mistake::waits_for_one_group_less, "a copy that was not waited for"},
                  {Mistake::no_barrier_behind_the_copy, "of shared memory"},
                  {Mistake::no_barrier_before_the_next_copy, "no barrier lies between"}};
  Workbench bench;
  const auto a = bench.normal<bf16>(64, 96), b = bench.normal<bf16>(64, 96);
  for (const auto& [mistake, found] : mistakes)
    for (const Order order : {Order::forward, Order::backward, Order::random}) {
      const With with(Machine{order, 1, true});
      std::string complaint;
      try {
        multiply(bench.dev, mistake, a, b, bench.zeros<float>(64, 64));
      } catch (const Violation& v) {
        complaint = v.what();
      }
      EXPECT_NE(complaint.find(found), std::string::npos) << int(mistake) << ": " << complaint;
    }
}
