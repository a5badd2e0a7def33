// SPDX-License-Identifier: BSD-3-Clause
// Tests of a GEMM kernel on tensor cores (mma): results are correct, and typical mistakes are found.
#include "regression/cuda/any_shape.hpp"
#include "regression/cuda/product.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::tensor_cores_suite {

using namespace gyr::cuda;
using namespace gyr::cuda::testing;

namespace {

void multiply(Device& dev, Mistake mistake, Tensor2<const bf16> a, Tensor2<const bf16> b, Tensor2<float> c) {
  const Index blocks = ceil_div(c.extent(0), tile) * ceil_div(c.extent(1), tile);
  launch(dev, "product", {blocks, threads, 4 * tile_elements * int(sizeof(bf16))}, tiled_gemm, mistake, a, b, c);
}

}  // namespace

TEST(tensor_cores, gemm_matches_reference_for_any_shape_and_order) {
  expect_gemms_of_any_shape(20, [](Device& dev, const auto& a, const auto& b, const auto& c) { multiply(dev, Mistake::none, a, b, c); });
}

TEST(tensor_cores, kernel_mistakes_are_found) {
  const struct {
    Mistake mistake;
    const char* found;
  } mistakes[] = {{Mistake::waits_for_one_group_less, "a copy that was not waited for"},
                  {Mistake::no_barrier_after_the_copy, "of shared memory"},
                  {Mistake::no_barrier_before_the_next_copy, "without a barrier between"}};
  for (const auto& [mistake, found] : mistakes) {
    SCOPED_TRACE(int(mistake));
    expect_found_in_every_order(96, found, [&](Device& dev, const auto& a, const auto& b, const auto& c) { multiply(dev, mistake, a, b, c); });
  }
}

}  // namespace gyr::testing::tensor_cores_suite
