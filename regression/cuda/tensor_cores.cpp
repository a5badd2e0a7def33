// SPDX-License-Identifier: BSD-3-Clause
// A product of tensor cores is a product, and the mistakes that such kernels are made with are found.
#include "regression/cuda/any_shape.hpp"
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

}  // namespace

TEST(tensor_cores, multiply_matrices_of_any_shape_in_every_order) {
  expect_products_of_any_shape(20, [](Device& dev, const auto& a, const auto& b, const auto& c) { multiply(dev, Mistake::none, a, b, c); });
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
