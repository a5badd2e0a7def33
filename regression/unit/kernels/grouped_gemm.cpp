// SPDX-License-Identifier: BSD-3-Clause
// Grouped GEMMs and biases of MoE experts against plain loops in double. Random cases include groups without rows, all
// rows in one group, rows after the last group, groups without a gradient, and rows that are not aligned. Rows per
// group range from those of one decoded token to many.
#include "kernels/ops/grouped_biases.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "regression/support/grouped.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::grouped_gemm_suite {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::vector<Index> rows;  // rows of each group
  std::vector<bool> trained;
  Index unused_rows, n, k, even;
  bool known;

  explicit Case(std::mt19937& random) {
    const auto from = [&](Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random); };
    const bool many = from(0, 4) == 0;
    const Index largest = many ? 24 : 150;
    for (Index* width : {&n, &k}) *width = from(0, 2) ? 8 * from(1, largest / 8) : from(1, largest);
    even = from(0, 1) ? from(0, 16) : from(0, 3) ? 100 : 1000;
    rows.resize(std::size_t(many ? from(0, 1) ? from(33, 70) : from(257, 300) : from(1, 6)));
    Index left = many ? 330 : from(1, 160);
    const Index how = from(0, 5);
    if (how == 0) rows[std::size_t(from(0, Index(rows.size()) - 1))] = left;
    else if (how < 3 && rows.size() < 100) rows.assign(rows.size(), 1);  // one row per group gives the maximum number of tiles
    else
      for (Index& r : rows)
        if (rows.size() < 100 ? from(0, 1) : from(0, 15) == 0) left -= r = from(0, std::min<Index>(left, many || from(0, 1) ? 20 : 150));
    if (many && from(0, 1)) std::reverse(rows.begin(), rows.end());
    for (std::size_t g = 0; g < rows.size(); ++g) trained.push_back(from(0, 4) > 0);
    unused_rows = from(0, 1) ? from(1, 9) : 0, known = unused_rows > 0;
  }
  Index all() const { return std::accumulate(rows.begin(), rows.end(), unused_rows); }
  Index groups() const { return Index(rows.size()); }
  std::string name() const {
    std::string text = fmt::format("({},{}), even {}, {} rows after the last group, groups of", n, k, even, unused_rows);
    for (const Index r : rows) text += fmt::format(" {}", r);
    return text;
  }
  // Calls f(group, row) for all rows that belong to a group.
  template <class F>
  void each(const F& f) const {
    Index row = 0;
    for (Index g = 0; g < groups(); ++g)
      for (Index i = 0; i < rows[std::size_t(g)]; ++i) f(g, row++);
  }
};

template <class T>
struct Tensors {
  Tensor1<std::int32_t> count;
  Tensor2<T> x, dy, wide, y, dx;  // wide: another output gradient, with extra columns on both sides
  std::vector<Tensor2<T>> w;
  std::vector<Tensor2<Acc<T>>> dw;

  // Rows after the last group hold NaN, which must stay there and must not spread. Outputs hold NaN before they are
  // written.
  Tensors(Workbench& bench, const Case& c) : count(bench.zeros<std::int32_t>(c.groups())) {
    x = bench.normal<T>(c.all(), c.k), dy = bench.normal<T>(c.all(), c.n), wide = bench.normal<T>(c.all(), c.n + 16);
    y = bench.zeros<T>(c.all(), c.n), dx = bench.zeros<T>(c.all(), c.k);
    for (const auto& [tensor, from] :
         {std::pair(x, c.all() - c.unused_rows), {dy, c.all() - c.unused_rows}, {wide, c.all() - c.unused_rows}, {y, Index(0)}, {dx, Index(0)}})
      std::fill(tensor.data() + from * Index(tensor.extent(1)), tensor.data() + tensor.span(), T(nan));
    for (Index g = 0; g < c.groups(); ++g) {
      count(g) = std::int32_t(c.rows[std::size_t(g)]);
      w.push_back(bench.normal<T>(c.n, c.k)), dw.push_back(bench.normal<Acc<T>>(c.n, c.k));
    }
  }
  Matrix<const T> neighbours(const Case& c) const { return columns(Matrix<const T>(wide), 8, c.n); }
  GroupMatrices<const T> weights(const Case& c) const {
    GroupMatrices<const T> all{{}, c.n, c.k};
    for (const auto& one : w) all.data.push_back(one.data());
    return all;
  }
  GroupMatrices<Acc<T>> gradients(const Case& c) const {
    GroupMatrices<Acc<T>> all{{}, c.n, c.k};
    for (std::size_t g = 0; g < dw.size(); ++g) all.data.push_back(c.trained[g] ? dw[g].data() : nullptr);
    return all;
  }
};

// Expected results in double. Rows after the last group stay NaN.
template <class T>
struct Loops {
  std::vector<double> y, dx;
  std::vector<std::vector<double>> dw;

  Loops(const Case& c, const Tensors<T>& t) : y(c.all() * c.n, nan), dx(c.all() * c.k, nan) {
    for (const auto& one : t.dw) dw.push_back(values_of(one));
    const auto neighbours = t.neighbours(c);
    c.each([&](Index g, Index r) {
      const auto& w = t.w[std::size_t(g)];
      for (Index n = 0; n < c.n; ++n) y[r * c.n + n] = 0;
      for (Index k = 0; k < c.k; ++k) dx[r * c.k + k] = 0;
      for (Index n = 0; n < c.n; ++n)
        for (Index k = 0; k < c.k; ++k) {
          y[r * c.n + n] += double(t.x(r, k)) * double(w(n, k));
          dx[r * c.k + k] += double(t.dy(r, n)) * double(w(n, k));
          if (c.trained[std::size_t(g)]) dw[std::size_t(g)][n * c.k + k] += double(neighbours(r, n)) * double(t.x(r, k));
        }
    });
  }
};

// Compares the rows that belong to groups. Rows after the last group must be unchanged.
template <class T>
void expect_rows(const Case& c, const char* what, const Tensor2<T>& found, const std::vector<double>& wanted) {
  const Index elements_of_groups = (c.all() - c.unused_rows) * Index(found.extent(1));
  const std::vector<double> all = values_of(found);
  EXPECT_LE(difference({all.begin(), all.begin() + elements_of_groups}, {wanted.begin(), wanted.begin() + elements_of_groups}), tolerance<T>) << what;
  for (auto v = all.begin() + elements_of_groups; v != all.end(); ++v)
    EXPECT_TRUE(std::isnan(*v)) << what << ": a row after the last group was written";
}

template <class T>
void expect_loops(const Case& c) {
  Workbench bench;
  const Tensors<T> t(bench, c);
  const Loops<T> loops(c, t);
  const auto multiply = [&](Device& dev, bool known) {
    const RowGroups groups{t.count, c.even, c.all() - c.unused_rows, known ? c.rows : std::vector<Index>()};
    grouped_linear<T>(dev, groups, t.x, t.weights(c), t.y);
    grouped_linear_backward_input<T>(dev, groups, t.dy, t.weights(c), t.dx);
    grouped_linear_backward_weight<T>(dev, groups, t.neighbours(c), t.x, t.gradients(c));
  };
  multiply(bench.dev, c.known);
  expect_rows(c, "y", t.y, loops.y);
  expect_rows(c, "dx", t.dx, loops.dx);
  for (std::size_t g = 0; g < t.dw.size(); ++g) EXPECT_LE(difference(values_of(t.dw[g]), loops.dw[g]), tolerance<Acc<T>>) << "dw of group " << g;
  Device dry(true, 0);
  multiply(dry, true);
  EXPECT_EQ(dry.flops(), bench.dev.flops());
  EXPECT_GE(dry.scratch.high_water(), bench.dev.scratch.high_water());
}

// y += b, z += w b, terms = w dy, dw += <dy, b>, db += sums of dy
template <class T>
void expect_loops_of_biases(const Case& c, std::mt19937& random) {
  using A = Acc<T>;
  Workbench bench;
  const Tensors<T> t(bench, c);
  const auto y = bench.copy(t.dy), z = bench.copy(t.dy), terms = bench.copy(t.y);
  const auto w = bench.normal<A>(c.all(), 1), dw = bench.normal<A>(c.all(), 1);
  const auto slot = bench.arena.tensor<std::int32_t>(c.all());
  std::iota(slot.data(), slot.data() + c.all(), 0);
  std::shuffle(slot.data(), slot.data() + c.all(), random);
  GroupMatrices<const A> biases{{}, c.n, 1};
  GroupMatrices<A> gradients{{}, c.n, 1};
  std::vector<Tensor1<A>> b, db;
  for (Index g = 0; g < c.groups(); ++g) {
    b.push_back(bench.normal<A>(c.n)), db.push_back(bench.normal<A>(c.n));
    biases.data.push_back(b.back().data()), gradients.data.push_back(c.trained[std::size_t(g)] ? db.back().data() : nullptr);
  }
  std::vector<double> y_wanted = values_of(y), z_wanted = values_of(z), terms_wanted = values_of(terms), dw_wanted = values_of(dw);
  std::vector<std::vector<double>> db_wanted;
  for (const auto& one : db) db_wanted.push_back(values_of(one));
  c.each([&](Index g, Index r) {
    const double weight = double(w.data()[slot(r)]);
    for (Index n = 0; n < c.n; ++n) {
      const double bias = double(b[std::size_t(g)](n)), d = double(t.dy(r, n));
      y_wanted[r * c.n + n] += bias, z_wanted[r * c.n + n] += weight * bias;
      terms_wanted[r * c.n + n] = weight * d, dw_wanted[slot(r)] += d * bias;
      if (c.trained[std::size_t(g)]) db_wanted[std::size_t(g)][n] += double(t.neighbours(c)(r, n));
    }
  });
  const auto enqueue = [&](Device& dev, bool known) {
    const RowGroups groups{t.count, c.even, c.all() - c.unused_rows, known ? c.rows : std::vector<Index>()};
    grouped_add_bias<T>(dev, groups, biases, y);
    grouped_add_weighted_bias<T>(dev, groups, slot, w, biases, z);
    for (const auto& to : {dw, Tensor2<A>()}) grouped_weighted_bias_backward<T>(dev, groups, slot, t.dy, w, biases, to, terms);
    grouped_bias_backward<T>(dev, groups, t.neighbours(c), gradients);
  };
  enqueue(bench.dev, c.known);
  expect_rows(c, "y", y, y_wanted);
  expect_rows(c, "z", z, z_wanted);
  expect_rows(c, "terms", terms, terms_wanted);
  EXPECT_LE(difference(values_of(dw), dw_wanted), tolerance<A>);
  for (std::size_t g = 0; g < db.size(); ++g) EXPECT_LE(difference(values_of(db[g]), db_wanted[g]), tolerance<A>) << "db of group " << g;
  Device dry(true, 0);
  enqueue(dry, true);
  EXPECT_EQ(dry.flops(), bench.dev.flops());
  EXPECT_GE(dry.scratch.high_water(), bench.dev.scratch.high_water());
}

}  // namespace

TEST(grouped_gemm, gemms_match_reference_loops) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    const Case c(random);
    SCOPED_TRACE(c.name());
    expect_loops<bf16>(c);
    if (draw % 3) continue;
    expect_loops<float>(c);
    expect_loops<double>(c);
  }
}

TEST(grouped_gemm, biases_match_reference_loops) {
  std::mt19937 random(gyr::testing::seed_of_run());
  for (int draw = 0; draw < 16; ++draw) {
    const Case c(random);
    SCOPED_TRACE(c.name());
    expect_loops_of_biases<bf16>(c, random);
    if (draw % 3) continue;
    expect_loops_of_biases<float>(c, random);
    expect_loops_of_biases<double>(c, random);
  }
}

// Sizes at which every slot of the kernels' pipelines is used for several tiles. Too slow for emulated kernels.
TEST(grouped_gemm, bf16_follows_double_over_many_tiles) {
  gyr::testing::expect_bf16_follows_double({{1, 700, 0, 300, 129}, 520, 600, 200});
  gyr::testing::expect_bf16_follows_double({{64, 0, 128, 700, 2}, 600, 333, 200});
  gyr::testing::expect_bf16_follows_double({{3, 0, 40, 1}, 520, 1000, 4});
}

}  // namespace gyr::testing::grouped_gemm_suite
