// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/rmsnorm.hpp"

#include "regression/support/tensors.hpp"

namespace gyr::testing::rmsnorm_suite {

namespace {

// height spans more than two blocks of rows. 37 columns are no multiple of the vector length, 48 are.
constexpr Index height = 150, width = 37, full = 48;
// Row widths for which a GPU block holds the row in one, two and four packs per thread, and a width beyond these.
template <class T>
constexpr Index wide[] = {6144 / sizeof(T) - 16, 6144 / sizeof(T) + 16, 12288 / sizeof(T) + 16, 24576 / sizeof(T) + 16};
constexpr Index few = 11;
constexpr double eps = 1e-2;  // so large that the tests fail if a kernel omits eps

struct Plain {
  std::vector<double> y, rstd, dx, dg;
};

// Reference in plain loops, by the formulas of the kernel's header: y, rstd, dx and the weight gradient dg.
Plain plain(const std::vector<double>& x, const std::vector<double>& g, const std::vector<double>& dy) {
  const Index width = Index(g.size()), height = Index(x.size()) / width;
  Plain p{std::vector<double>(x.size()), std::vector<double>(height), std::vector<double>(x.size()), std::vector<double>(width)};
  for (Index r = 0; r < height; ++r) {
    const Index at = r * width;
    double squares = 0, product = 0;
    for (Index d = 0; d < width; ++d) squares += x[at + d] * x[at + d];
    const double k = p.rstd[r] = 1 / std::sqrt(squares / width + eps);
    for (Index d = 0; d < width; ++d) product += g[d] * dy[at + d] * x[at + d] * k;
    for (Index d = 0; d < width; ++d) {
      p.y[at + d] = g[d] * x[at + d] * k;
      p.dx[at + d] = k * (g[d] * dy[at + d] - x[at + d] * k * product / width);
      p.dg[d] += dy[at + d] * x[at + d] * k;
    }
  }
  return p;
}

template <class T>
void agrees_with_plain_loops(Index width, double offset, Index height = rmsnorm_suite::height) {
  using A = Acc<T>;
  Workbench bench;
  const auto x = bench.normal<T>(height, width), dy = bench.normal<T>(height, width), y = bench.zeros<T>(height, width);
  const auto g = bench.normal<A>(width), rstd = bench.zeros<A>(height);
  std::vector<double> scales = values_of(g);
  for (double& w : scales) w += offset;
  const Plain want = plain(values_of(x), scales, values_of(dy));

  rmsnorm<T>(bench.dev, x, g, eps, y, rstd, offset);
  EXPECT_LE(difference(values_of(y), want.y), tolerance<T>);
  EXPECT_LE(difference(values_of(rstd), want.rstd), tolerance<A>);

  for (const Add add : {Add::no, Add::yes}) {
    const auto dx = bench.normal<T>(height, width);
    const auto dg = bench.normal<A>(width);
    auto want_dx = want.dx, want_dg = want.dg;
    const auto dx_before = values_of(dx), dg_before = values_of(dg);
    for (std::size_t i = 0; i < want_dx.size(); ++i) want_dx[i] += add == Add::yes ? dx_before[i] : 0;
    for (std::size_t i = 0; i < want_dg.size(); ++i) want_dg[i] += dg_before[i];
    const auto dx_again = bench.copy(dx);
    const auto dg_again = bench.copy(dg);
    rmsnorm_backward<T>(bench.dev, dy, x, g, rstd, add, dx, dg, offset);
    EXPECT_LE(difference(values_of(dx), want_dx), tolerance<T>);
    EXPECT_LE(difference(values_of(dg), want_dg), tolerance<A>);
    rmsnorm_backward<T>(bench.dev, dy, x, g, rstd, add, dx_again, dg_again, offset);
    EXPECT_TRUE(same_bits(dx, dx_again) && same_bits(dg, dg_again));
  }
}

}  // namespace

TEST(rmsnorm, agrees_with_plain_loops) {
  for (const Index columns : {width, full})
    for (const double offset : {0.0, 1.0}) {
      agrees_with_plain_loops<double>(columns, offset);
      agrees_with_plain_loops<float>(columns, offset);
      agrees_with_plain_loops<bf16>(columns, offset);
    }
}

TEST(rmsnorm, wide_rows_agree_with_plain_loops) {
  for (const Index columns : wide<double>) agrees_with_plain_loops<double>(columns, 1, few);
  for (const Index columns : wide<bf16>) agrees_with_plain_loops<bf16>(columns, 1, few);
}

TEST(rmsnorm, gradients_match_finite_differences) {
  Workbench bench;
  const Index rows = 5, narrow = 7;
  const auto x = bench.normal<double>(rows, narrow), dy = bench.normal<double>(rows, narrow), y = bench.zeros<double>(rows, narrow);
  const auto g = bench.normal<double>(narrow), rstd = bench.zeros<double>(rows);
  const auto loss = [&] {
    rmsnorm<double>(bench.dev, x, g, eps, y, rstd);
    return dot(values_of(y), values_of(dy));
  };
  loss();
  const auto dx = bench.zeros<double>(rows, narrow);
  const auto dg = bench.zeros<double>(narrow);
  rmsnorm_backward<double>(bench.dev, dy, x, g, rstd, Add::no, dx, dg);
  EXPECT_LE(difference(values_of(dx), slope(flat(x), loss)), 1e-9);
  EXPECT_LE(difference(values_of(dg), slope(g, loss)), 1e-9);
}

// Hugging Face rounds x * rstd to the data type of the model before it multiplies by the weight.
TEST(rmsnorm, normalized_row_is_rounded_before_weight_multiplication) {
  Workbench bench;
  const auto x = bench.normal<bf16>(height, width), y = bench.zeros<bf16>(height, width);
  const auto g = bench.normal<float>(width), rstd = bench.zeros<float>(height);
  rmsnorm<bf16>(bench.dev, x, g, eps, y, rstd);
  for (Index r = 0; r < height; ++r)
    for (Index d = 0; d < width; ++d) ASSERT_EQ(float(y(r, d)), float(bf16(g(d) * float(bf16(float(x(r, d)) * rstd(r))))));
}

TEST(rmsnorm, row_scale_cancels_when_eps_is_zero) {
  Workbench bench;
  const auto x = bench.normal<float>(height, width), y = bench.zeros<float>(height, width), z = bench.zeros<float>(height, width);
  const auto g = bench.normal<float>(width), rstd = bench.zeros<float>(height);
  rmsnorm<float>(bench.dev, x, g, 0, y, rstd);
  for (Index i = 0; i < height * width; ++i) x.data()[i] *= 1024;
  rmsnorm<float>(bench.dev, x, g, 0, z, rstd);
  EXPECT_LE(difference(values_of(z), values_of(y)), 1e-6);
}

TEST(rmsnorm, dry_run_counts_same_flops_and_scratch_bytes) {
  Workbench bench;
  Device dry(true, 0), real(false, 1 << 20);
  Arena memory = Arena::dry_run(Memory::activations);
  const auto use = [](Device& dev, Tensor2<float> x, Tensor1<float> g, Tensor1<float> rstd) {
    rmsnorm<float>(dev, x, g, eps, x, rstd);
    rmsnorm_backward<float>(dev, x, x, g, rstd, Add::yes, x, g);
  };
  use(dry, memory.tensor<float>(height, width), memory.tensor<float>(width), memory.tensor<float>(height));
  use(real, bench.normal<float>(height, width), bench.normal<float>(width), bench.normal<float>(height));
  EXPECT_EQ(dry.scratch.high_water(), real.scratch.high_water());
  EXPECT_EQ(dry.scratch.used(), 0);
  EXPECT_EQ(dry.flops(), real.flops());
  EXPECT_GT(dry.flops(), 0);
}

}  // namespace gyr::testing::rmsnorm_suite
