// SPDX-License-Identifier: BSD-3-Clause
// Muon and the Newton-Schulz iteration follow their formulas, written as plain loops in double precision, and have the
// values and properties that the publications state.
#include <random>

#include "modules/optimizers/matrix_rule.hpp"
#include "modules/optimizers/newton_schulz.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"
#include "src/deck/deck.hpp"
#include "src/engine/config/optimizer_config.hpp"

namespace gyr::testing::muon_suite {
namespace {

using Values = std::vector<double>;

// A matrix in plain loops.
struct Plain {
  Index rows, columns;
  Values x;
  double& at(Index r, Index c) { return x[std::size_t(r * columns + c)]; }
  double at(Index r, Index c) const { return x[std::size_t(r * columns + c)]; }
};

Plain product(const Plain& a, const Plain& b) {
  Plain c{a.rows, b.columns, Values(std::size_t(a.rows * b.columns), 0.0)};
  for (Index i = 0; i < a.rows; ++i)
    for (Index k = 0; k < a.columns; ++k)
      for (Index j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}
Plain transposed(const Plain& a) {
  Plain t{a.columns, a.rows, Values(a.x.size())};
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  return t;
}

Plain plain_newton_schulz(Plain m, const PolynomialSteps& steps) {
  const bool tall = m.rows > m.columns;
  double squares = 0;
  for (const double x : m.x) squares += x * x;
  for (double& x : m.x) x /= std::max(std::sqrt(squares), 1e-7);
  Plain x = tall ? transposed(m) : m;
  for (const auto& [a, b, c] : steps) {
    const Plain square = product(x, transposed(x)), fourth = product(square, square);
    Plain polynomial = square;
    for (std::size_t i = 0; i < polynomial.x.size(); ++i) polynomial.x[i] = b * square.x[i] + c * fourth.x[i];
    Plain next = product(polynomial, x);
    for (std::size_t i = 0; i < x.x.size(); ++i) next.x[i] += a * x.x[i];
    x = next;
  }
  return tall ? transposed(x) : x;
}

// Singular values, ascending: roots of the eigenvalues of M M' by Jacobi rotations.
Values singular_values(const Plain& m) {
  Plain a = m.rows <= m.columns ? product(m, transposed(m)) : product(transposed(m), m);
  const Index n = a.rows;
  for (int sweep = 0; sweep < 30; ++sweep)
    for (Index p = 0; p < n; ++p)
      for (Index q = p + 1; q < n; ++q) {
        if (a.at(p, q) == 0) continue;
        const double theta = 0.5 * std::atan2(2 * a.at(p, q), a.at(q, q) - a.at(p, p)), c = std::cos(theta), s = std::sin(theta);
        for (Index k = 0; k < n; ++k) {
          const double x = a.at(k, p), y = a.at(k, q);
          a.at(k, p) = c * x - s * y, a.at(k, q) = s * x + c * y;
        }
        for (Index k = 0; k < n; ++k) {
          const double x = a.at(p, k), y = a.at(q, k);
          a.at(p, k) = c * x - s * y, a.at(q, k) = s * x + c * y;
        }
      }
  Values values;
  for (Index i = 0; i < n; ++i) values.push_back(std::sqrt(std::max(0.0, a.at(i, i))));
  std::sort(values.begin(), values.end());
  return values;
}

template <class A>
Tensor2<A> on_device(Workbench& bench, const Plain& m) {
  const auto x = bench.zeros<A>(m.rows, m.columns);
  for (std::size_t i = 0; i < m.x.size(); ++i) x.data()[i] = A(m.x[i]);
  return x;
}

Plain orthogonal(const Plain& m, const PolynomialSteps& steps, double scale = 1) {
  Workbench bench;
  const auto x = on_device<double>(bench, m);
  newton_schulz<double>(bench.dev, steps, scale, x);
  return {m.rows, m.columns, values_of(x)};
}

Plain gradient(Index rows, Index columns, int t) {
  Plain g{rows, columns, Values(std::size_t(rows * columns))};
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      g.at(i, j) = std::sin(1 + 0.7 * double(i) + 1.3 * double(j) + 0.4 * t) + 0.1 * std::cos(2.0 * double(i) - double(j) + t);
  return g;
}

Plain drawn(std::mt19937& random, Index rows, Index columns) {
  std::normal_distribution<double> normal;
  Plain m{rows, columns, Values(std::size_t(rows * columns))};
  for (double& x : m.x) x = double(float(bf16(float(normal(random)))));
  return m;
}

OptimizerConfig optimizer_of(const std::string& settings) {
  Deck deck = Deck::parse("optimizer: {name: muon, muon: {" + settings + "}}", "test.yaml", {});
  return read_optimizer(deck.section("optimizer", "test"), {});
}

Weight matrix(Index rows, Index columns) { return {"layer.weight", {rows, columns}, replicated(), zeros(), Storage::factor}; }

// A weight of type T on one device, which a rule updates as the engine does; its matrices are blocks of rows.
template <class T>
struct Updated {
  using A = Acc<T>;
  Workbench bench;
  OptimizerConfig optimizer;
  Weight weight;
  Tensor2<T> w;
  Tensor2<A> g, b, master;
  AnyTensor values;

  Updated(const std::string& settings, const Weight& declared, const Plain& start)
      : optimizer(optimizer_of(settings)), weight(declared), w(on_device<T>(bench, start)), g(bench.zeros<A>(start.rows, start.columns)),
        b(bench.zeros<A>(start.rows, start.columns)), values(bench.zeros<A>(update_values)) {
    if constexpr (!std::is_same_v<T, A>) master = on_device<A>(bench, start);
  }
  const MatrixRule& rule() const { return dynamic_cast<const MatrixRule&>(optimizer.rule_of(weight)); }
  void step(const StepOfWeight& s, const Plain& gradient) {
    std::copy(gradient.x.begin(), gradient.x.end(), g.data());
    const UpdateValues now = rule().values(s);
    std::copy(now.begin(), now.end(), static_cast<A*>(values.data));
    const WeightUpdate u{flat(g), flat(w), master.data() ? AnyTensor(flat(master)) : AnyTensor(), {flat(b)}, values, {}};
    rule().update(bench.dev, u);
    const Index columns = weight.shape[1];
    for (const Box& box : rule().matrices(weight)) {
      Scope scope(bench.dev.scratch);
      const AnyTensor2 whole = take(bench.dev.scratch, dtype_of<A>(), box.count[0], columns);
      const StridedBlock here{box.first[0] * columns, box.count[0], columns, columns}, there{0, box.count[0], columns, columns};
      rule().direction(bench.dev, u, here, whole.flat(), there);
      rule().transform(bench.dev, whole);
      rule().apply(bench.dev, u, here, whole.flat(), there);
    }
  }
  Values exact() const { return master.data() ? values_of(master) : values_of(w); }
};

}  // namespace

// Values in double precision; torch.optim.Muon of PyTorch 2.15 agrees to 1e-3, as far as its bf16 products allow.
TEST(muon, updates_equal_published_values) {
  struct Row {
    Index rows, columns;
    const char* scale;
    int t;
    double sum, squares, first, last;
  };
  for (const Row& row : {Row{4, 3, "original", 1, -3.35260085744478, 6.09941717694965, 0.93421735616345, -0.659044724596121},
                         Row{4, 3, "original", 3, -3.26325070016756, 5.84816378597083, 0.892330684922016, -0.670462626197084},
                         Row{4, 3, "match_rms_adamw", 3, -3.32399532723423, 6.05029829621574, 0.929771736768843, -0.656911729406379},
                         Row{3, 5, "original", 3, -5.04622895773921, 7.2575980230572, 0.911211924290626, -0.580065377618405},
                         Row{3, 5, "match_rms_adamw", 3, -5.0391491691533, 7.28334031730738, 0.932441134637914, -0.575265267114983}}) {
    Plain start{row.rows, row.columns, Values(std::size_t(row.rows * row.columns))};
    for (Index i = 0; i < row.rows; ++i)
      for (Index j = 0; j < row.columns; ++j) start.at(i, j) = std::cos(0.3 + 0.9 * double(i) + 0.5 * double(j));
    Updated<double> weight("scale: " + std::string(row.scale), matrix(row.rows, row.columns), start);
    for (int t = 1; t <= row.t; ++t) weight.step({0.02, 0.1, 1, double(t)}, gradient(row.rows, row.columns, t));
    double sum = 0, squares = 0;
    const Values w = weight.exact();
    for (const double x : w) sum += x, squares += x * x;
    EXPECT_NEAR(sum, row.sum, 1e-12) << row.scale << " " << row.t;
    EXPECT_NEAR(squares, row.squares, 1e-12);
    EXPECT_NEAR(w.front(), row.first, 1e-13);
    EXPECT_NEAR(w.back(), row.last, 1e-13);
  }
}

TEST(muon, newton_schulz_equals_published_values) {
  struct Row {
    const char* name;
    double first, last;
    Values singular;
  };
  const Plain g = gradient(3, 5, 0);
  for (const Row& row : {Row{"simple", 0.291915669622923, 0.318897198045602, {0.682877701405233, 0.953014620601198, 1.1322210198255}},
                         Row{"quintic", 0.256803090014252, 0.413529675128814, {0.985792041819636, 0.998756214019153, 1.00003245491734}},
                         Row{"polar_express", 0.23663972743321, 0.414219815303983, {0.876642623183307, 0.892278547462062, 1.005346956694}}}) {
    const Plain x = orthogonal(g, polynomials(row.name, 5));
    EXPECT_NEAR(x.at(0, 0), row.first, 1e-13) << row.name;
    EXPECT_NEAR(x.at(2, 4), row.last, 1e-13) << row.name;
    const Values singular = singular_values(x);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(singular[i], row.singular[i], 1e-12) << row.name;
  }
}

// A stored matrix of three runs of rows is one matrix or three.
TEST(muon, segments_are_orthogonalised_apart) {
  Weight stacked = matrix(6, 4);
  stacked.shardings = by_rows({{2, 2}, {2, 2}, {2, 2}});
  const Plain g = gradient(6, 4, 1);
  for (const auto& [split, wanted] : {std::pair("whole", -0.319545990941946), std::pair("segments", -0.880723886504181)}) {
    Updated<double> weight(fmt::format("split: {}, momentum: 0, scale: spectral", split), stacked, {6, 4, Values(24, 0.0)});
    weight.step({1, 0, 1, 1}, g);
    double sum = 0;
    for (const double x : weight.exact()) sum -= x;
    const double scale = std::string_view(split) == "whole" ? std::sqrt(6.0) : 2;
    EXPECT_NEAR(sum / scale, wanted, 1e-12) << split;
  }
}

TEST(muon, heads_split_queries_and_states_only) {
  Weight w = matrix(30, 4);
  w.shardings = by_rows({{12, 3, true, "mamba.num_heads"}, {12, 2, false, "mamba.num_groups"}, {6, 6, false, "mamba.num_heads"}});
  const auto rows = [&](const std::string& split) {
    std::vector<Index> all;
    for (const Box& box : dynamic_cast<const MatrixRule&>(optimizer_of("split: " + split).rule_of(w)).matrices(w)) all.push_back(box.count[0]);
    return all;
  };
  EXPECT_EQ(rows("heads"), (std::vector<Index>{4, 4, 4, 12, 6}));
  EXPECT_EQ(rows("segments"), (std::vector<Index>{12, 12, 6}));
  EXPECT_EQ(rows("whole"), (std::vector<Index>{30}));
}

TEST(muon, other_weights_keep_their_rule) {
  const OptimizerConfig c = optimizer_of("scalar: lion, scalar_lr: 0.25");
  Weight w = matrix(4, 4);
  EXPECT_EQ(c.rule_of(w).name(), "muon");
  EXPECT_EQ(c.group_of(w).lr_factor, 1);
  for (auto change : {+[](Weight& x) { x.of_output = true; }, +[](Weight& x) { x.of_adapter = true; }, +[](Weight& x) { x.decays = false; },
                      +[](Weight& x) { x.storage = Storage::narrow; },
                      +[](Weight& x) {
                        x.shape = {4, 1, 4};
                      }}) {
    Weight other = w;
    change(other);
    EXPECT_EQ(c.rule_of(other).name(), "lion");
    EXPECT_EQ(c.group_of(other).lr_factor, 0.25);
  }
}

template <class T>
void follows(std::mt19937& random, double limit) {
  const Index rows = 1 + Index(random() % 40), columns = 1 + Index(random() % 40);
  const bool nesterov = random() % 2;
  const std::vector<std::string> names = polynomial_names();
  const std::string name = names[random() % names.size()];
  Plain w = drawn(random, rows, columns), b{rows, columns, Values(w.x.size(), 0.0)};
  Updated<T> weight(fmt::format("nesterov: {}, coefficients: {}, scale: unit_rms, momentum: 0.8, ns_steps: 4", nesterov, name), matrix(rows, columns),
                    w);
  for (int t = 1; t <= 3; ++t) {
    const Plain g = drawn(random, rows, columns);
    const StepOfWeight s{0.05, 0.1, 0.5, double(t)};
    weight.step(s, g);
    Plain u = g;
    for (std::size_t i = 0; i < u.x.size(); ++i) {
      b.x[i] = 0.8 * b.x[i] + 0.2 * 0.5 * g.x[i];
      u.x[i] = nesterov ? 0.2 * 0.5 * g.x[i] + 0.8 * b.x[i] : b.x[i];
    }
    const Plain o = plain_newton_schulz(u, polynomials(name, 4));
    for (std::size_t i = 0; i < w.x.size(); ++i) w.x[i] = (1 - 0.05 * 0.1) * w.x[i] - 0.05 * std::sqrt(double(rows) / double(columns)) * o.x[i];
  }
  EXPECT_LE(difference(weight.exact(), w.x), limit) << rows << " x " << columns << " " << name;
  EXPECT_LE(difference(values_of(weight.b), b.x), limit);
  if constexpr (!std::is_same_v<T, Acc<T>>) {
    for (std::size_t i = 0; i < w.x.size(); ++i) EXPECT_EQ(double(weight.w.data()[i]), double(T(weight.master.data()[i])));
  }
}

TEST(muon, follows_its_formula_on_drawn_matrices) {
  std::mt19937 random(seed_of_run());
  for (int i = 0; i < 20; ++i) {
    follows<double>(random, 1e-11);
    follows<float>(random, 1e-4);
    follows<bf16>(random, 1e-4);
  }
}

TEST(muon, orthogonal_factor_ignores_transposition_and_scale) {
  std::mt19937 random(seed_of_run());
  for (int i = 0; i < 10; ++i) {
    const Plain m = drawn(random, 2 + Index(random() % 20), 2 + Index(random() % 20));
    const PolynomialSteps steps = polynomials("simple", 5);
    const Plain o = orthogonal(m, steps);
    EXPECT_LE(difference(transposed(orthogonal(transposed(m), steps)).x, o.x), 1e-10);
    Plain scaled = m;
    for (double& x : scaled.x) x *= 37.5;
    EXPECT_LE(difference(orthogonal(scaled, steps).x, o.x), 1e-10);
    const Values before = singular_values(m), after = singular_values(o);
    double squares = 0;
    for (const double x : m.x) squares += x * x;
    if (before.front() >= 0.002 * std::sqrt(squares)) {
      EXPECT_GE(after.front(), 0.68 - 1e-6);
      EXPECT_LE(after.back(), 1.21);
    }
  }
}

TEST(muon, weights_without_gradient_only_decay) {
  std::mt19937 random(seed_of_run());
  const Plain start = drawn(random, 5, 7);
  Updated<double> weight("", matrix(5, 7), start);
  weight.step({0.1, 0.5, 1, 1}, {5, 7, Values(35, 0.0)});
  const Values w = weight.exact();
  for (std::size_t i = 0; i < w.size(); ++i) EXPECT_EQ(w[i], (1 - 0.1 * 0.5) * start.x[i]);
}

}  // namespace gyr::testing::muon_suite
