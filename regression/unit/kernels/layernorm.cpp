// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/layernorm.hpp"

#include "regression/support/tensors.hpp"

namespace gyr::testing::layernorm_suite {

namespace {

constexpr Index height = 150, width = 37, full = 48;  // height: more than two blocks of rows; width: no whole number of vectors; full: whole vectors
// Row widths that a GPU block holds in one, two and four packs per thread, and a larger one.
template <class T>
constexpr Index wide[] = {6144 / sizeof(T) - 16, 6144 / sizeof(T) + 16, 12288 / sizeof(T) + 16, 24576 / sizeof(T) + 16};
constexpr Index few = 11;
constexpr double eps = 1e-2;  // large enough that omitting eps fails the test

struct Plain {
  std::vector<double> y, mean, rstd, dx, dg, db;
};

// The formulas of kernels/ops/layernorm.hpp in plain loops.
Plain plain(const std::vector<double>& x, const std::vector<double>& g, const std::vector<double>& b, const std::vector<double>& dy) {
  const Index width = Index(g.size()), height = Index(x.size()) / width;
  Plain p{std::vector<double>(x.size()), std::vector<double>(height), std::vector<double>(height),
          std::vector<double>(x.size()), std::vector<double>(width),  std::vector<double>(width)};
  for (Index r = 0; r < height; ++r) {
    const Index at = r * width;
    double mean = 0, variance = 0, level = 0, along = 0;
    for (Index d = 0; d < width; ++d) mean += x[at + d] / double(width);
    for (Index d = 0; d < width; ++d) variance += std::pow(x[at + d] - mean, 2) / double(width);
    const double k = 1 / std::sqrt(variance + eps);
    p.mean[r] = mean, p.rstd[r] = k;
    for (Index d = 0; d < width; ++d) level += g[d] * dy[at + d] / double(width), along += g[d] * dy[at + d] * (x[at + d] - mean) * k / double(width);
    for (Index d = 0; d < width; ++d) {
      const double xh = (x[at + d] - mean) * k;
      p.y[at + d] = g[d] * xh + b[d];
      p.dx[at + d] = k * (g[d] * dy[at + d] - level - xh * along);
      p.dg[d] += dy[at + d] * xh, p.db[d] += dy[at + d];
    }
  }
  return p;
}

void add_to(std::vector<double>& sum, const std::vector<double>& x) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
}

template <class T>
void agrees_with_plain_loops(Index width, Index height = layernorm_suite::height) {
  using A = Acc<T>;
  Workbench bench;
  const auto x = bench.normal<T>(height, width), dy = bench.normal<T>(height, width), y = bench.zeros<T>(height, width);
  const auto g = bench.normal<A>(width), b = bench.normal<A>(width), mean = bench.zeros<A>(height), rstd = bench.zeros<A>(height);
  for (Index i = 0; i < height * width; ++i) x.data()[i] = T(float(x.data()[i]) + 2);  // gives the rows a mean other than zero
  const Plain want = plain(values_of(x), values_of(g), values_of(b), values_of(dy));

  layernorm<T>(bench.dev, x, g, b, eps, y, mean, rstd);
  EXPECT_LE(difference(values_of(y), want.y), tolerance<T>);
  EXPECT_LE(difference(values_of(mean), want.mean), tolerance<A>);
  EXPECT_LE(difference(values_of(rstd), want.rstd), tolerance<A>);

  for (const Add add : {Add::no, Add::yes}) {
    const auto dx = bench.normal<T>(height, width);
    const auto dg = bench.normal<A>(width), db = bench.normal<A>(width);
    auto want_dx = want.dx, want_dg = want.dg, want_db = want.db;
    if (add == Add::yes) add_to(want_dx, values_of(dx));
    add_to(want_dg, values_of(dg)), add_to(want_db, values_of(db));
    layernorm_backward<T>(bench.dev, dy, x, g, mean, rstd, add, dx, dg, db);
    EXPECT_LE(difference(values_of(dx), want_dx), tolerance<T>);
    EXPECT_LE(difference(values_of(dg), want_dg), tolerance<A>);
    EXPECT_LE(difference(values_of(db), want_db), tolerance<A>);
  }
}

}  // namespace

TEST(layernorm, agrees_with_plain_loops) {
  for (const Index columns : {width, full}) {
    agrees_with_plain_loops<double>(columns);
    agrees_with_plain_loops<float>(columns);
    agrees_with_plain_loops<bf16>(columns);
  }
}

TEST(layernorm, wide_rows_agree_with_plain_loops) {
  for (const Index columns : wide<double>) agrees_with_plain_loops<double>(columns, few);
  for (const Index columns : wide<bf16>) agrees_with_plain_loops<bf16>(columns, few);
}

TEST(layernorm, gradients_match_finite_differences) {
  Workbench bench;
  const Index rows = 5, narrow = 7;
  const auto x = bench.normal<double>(rows, narrow), dy = bench.normal<double>(rows, narrow), y = bench.zeros<double>(rows, narrow);
  const auto g = bench.normal<double>(narrow), b = bench.normal<double>(narrow), mean = bench.zeros<double>(rows), rstd = bench.zeros<double>(rows);
  const auto loss = [&] {
    layernorm<double>(bench.dev, x, g, b, eps, y, mean, rstd);
    return dot(values_of(y), values_of(dy));
  };
  loss();
  const auto dx = bench.zeros<double>(rows, narrow);
  const auto dg = bench.zeros<double>(narrow), db = bench.zeros<double>(narrow);
  layernorm_backward<double>(bench.dev, dy, x, g, mean, rstd, Add::no, dx, dg, db);
  EXPECT_LE(difference(values_of(dx), slope(flat(x), loss)), 1e-9);
  EXPECT_LE(difference(values_of(dg), slope(g, loss)), 1e-9);
  EXPECT_LE(difference(values_of(db), slope(b, loss)), 1e-9);
}

// The mean is subtracted before the squares are summed, so a mean far above the standard deviation costs no precision.
TEST(layernorm, large_mean_loses_no_precision) {
  Workbench bench;
  const auto x = bench.normal<double>(height, width), y = bench.zeros<double>(height, width), z = bench.zeros<double>(height, width);
  const auto g = bench.normal<double>(width), b = bench.normal<double>(width), mean = bench.zeros<double>(height), rstd = bench.zeros<double>(height);
  layernorm<double>(bench.dev, x, g, b, 0, y, mean, rstd);
  for (Index i = 0; i < height * width; ++i) x.data()[i] += 1e6;
  layernorm<double>(bench.dev, x, g, b, 0, z, mean, rstd);
  EXPECT_LE(difference(values_of(z), values_of(y)), 1e-8);
}

TEST(layernorm, dry_run_counts_same_flops_and_scratch) {
  Workbench bench;
  Device dry(true, 0), real(false, 1 << 20);
  Arena memory = Arena::dry_run(Memory::activations);
  const auto use = [](Device& dev, Tensor2<float> x, Tensor1<float> g, Tensor1<float> b, Tensor1<float> mean, Tensor1<float> rstd) {
    layernorm<float>(dev, x, g, b, eps, x, mean, rstd);
    layernorm_backward<float>(dev, x, x, g, mean, rstd, Add::yes, x, g, b);
  };
  use(dry, memory.tensor<float>(height, width), memory.tensor<float>(width), memory.tensor<float>(width), memory.tensor<float>(height),
      memory.tensor<float>(height));
  use(real, bench.normal<float>(height, width), bench.normal<float>(width), bench.normal<float>(width), bench.normal<float>(height),
      bench.normal<float>(height));
  EXPECT_EQ(dry.scratch.high_water(), real.scratch.high_water());
  EXPECT_EQ(dry.scratch.used(), 0);
  EXPECT_EQ(dry.flops(), real.flops());
  EXPECT_GT(dry.flops(), 0);
}

}  // namespace gyr::testing::layernorm_suite
