// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/head_norm.hpp"

#include "kernels/ops/rmsnorm.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::head_norm_suite {

namespace {

constexpr double eps = 1e-2;

struct Shape3 {
  Index rows, heads, width;
};
// Cases: more than two blocks of rows, a single head, heads that fill whole vectors. For GPUs: heads on part of a warp
// with lanes or heads left over, heads wider than a warp, and more heads than blocks.
constexpr Shape3 shapes[] = {{150, 3, 10}, {70, 1, 64}, {9, 5, 16}, {21, 3, 128}, {13, 4, 80}, {11, 1, 520}, {7, 3, 300}, {3, 1000, 31}};

// The norm of each head must equal an RMSNorm of rows * heads rows with `width` elements. RMSNorm itself is tested in
// rmsnorm.cpp.
template <class T>
void agrees_with_rmsnorm(const Shape3& s, double offset) {
  using A = Acc<T>;
  Workbench bench;
  const Index rows = s.rows * s.heads, gap = 8;
  const auto all = bench.normal<T>(s.rows, s.heads * s.width + gap), dy = bench.normal<T>(s.rows, s.heads * s.width + gap);
  const auto inside = [&](const Tensor2<T>& x) { return columns(x, gap, s.heads * s.width); };
  const auto packed = [&](const Matrix<T>& x) {
    const auto y = bench.zeros<T>(rows, s.width);
    for (Index r = 0; r < s.rows; ++r) std::copy_n(x.row(r), s.heads * s.width, y.data() + r * s.heads * s.width);
    return y;
  };
  const auto g = bench.normal<A>(s.width), dg = bench.normal<A>(s.width), dg_again = bench.copy(dg), rstd = bench.zeros<A>(rows);
  const auto y = bench.zeros<T>(s.rows, s.heads * s.width);
  const auto factors = bench.zeros<A>(s.rows, s.heads);
  const auto x = packed(inside(all)), want = bench.zeros<T>(rows, s.width), dx = bench.zeros<T>(rows, s.width), dy_packed = packed(inside(dy));
  rmsnorm<T>(bench.dev, x, g, eps, want, rstd, offset);
  rmsnorm_backward<T>(bench.dev, dy_packed, x, g, rstd, Add::no, dx, dg, offset);

  head_norm<T>(bench.dev, inside(all), g, eps, y, factors, offset);
  EXPECT_LE(difference(values_of(y), values_of(want)), tolerance<T>);
  EXPECT_LE(difference(values_of(factors), values_of(rstd)), tolerance<A>);
  head_norm_backward<T>(bench.dev, inside(dy), inside(all), g, factors, inside(dy), dg_again, offset);  // dx overwrites dy in place
  EXPECT_LE(difference(values_of(inside(dy)), values_of(dx)), tolerance<T>);
  EXPECT_LE(difference(values_of(dg_again), values_of(dg)), tolerance<A>);
}

}  // namespace

TEST(head_norm, equals_rmsnorm_of_every_head) {
  for (const Shape3& s : shapes)
    for (const double offset : {0.0, 1.0}) {
      agrees_with_rmsnorm<double>(s, offset);
      agrees_with_rmsnorm<float>(s, offset);
      agrees_with_rmsnorm<bf16>(s, offset);
    }
}

TEST(head_norm, gradients_match_finite_differences) {
  Workbench bench;
  const auto x = bench.normal<double>(4, 15), dy = bench.normal<double>(4, 15), y = bench.zeros<double>(4, 15), dx = bench.zeros<double>(4, 15);
  const auto g = bench.normal<double>(5), dg = bench.zeros<double>(5);
  const auto rstd = bench.zeros<double>(4, 3);
  const auto loss = [&] {
    head_norm<double>(bench.dev, x, g, eps, y, rstd);
    return dot(values_of(y), values_of(dy));
  };
  loss();
  head_norm_backward<double>(bench.dev, dy, x, g, rstd, dx, dg);
  EXPECT_LE(difference(values_of(dx), slope(flat(x), loss)), 1e-9);
  EXPECT_LE(difference(values_of(dg), slope(g, loss)), 1e-9);
}

TEST(head_norm, dry_run_counts_same_flops_and_scratch) {
  Workbench bench;
  Device dry(true, 0), real(false, 1 << 20);
  Arena memory = Arena::dry_run(Memory::activations);
  const auto use = [](Device& dev, Tensor2<float> x, Tensor1<float> g, Tensor2<float> rstd) {
    head_norm<float>(dev, x, g, eps, x, rstd);
    head_norm_backward<float>(dev, x, x, g, rstd, x, g);
  };
  use(dry, memory.tensor<float>(130, 24), memory.tensor<float>(8), memory.tensor<float>(130, 3));
  use(real, bench.normal<float>(130, 24), bench.normal<float>(8), bench.normal<float>(130, 3));
  EXPECT_EQ(dry.scratch.high_water(), real.scratch.high_water());
  EXPECT_EQ(dry.scratch.used(), 0);
  EXPECT_EQ(dry.flops(), real.flops());
  EXPECT_GT(dry.flops(), 0);
}

}  // namespace gyr::testing::head_norm_suite
