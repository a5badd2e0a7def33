// SPDX-License-Identifier: BSD-3-Clause
// Lion, SGD and LAMB follow their formulas, written as plain loops in double precision. AdamW: adamw.cpp.
#include <functional>
#include <random>

#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/updates/lamb.hpp"
#include "kernels/ops/updates/weight_update.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::update_rules_suite {

namespace {

using Values = std::vector<double>;

template <class A, class Rule>
Tensor1<const A> on_device(Workbench& bench, const Rule& rule, const StepOfWeight& step) {
  const UpdateValues values = rule.values(step);
  const auto there = bench.zeros<A>(update_values);
  for (Index i = 0; i < update_values; ++i) there(i) = A(values[std::size_t(i)]);
  return there;
}

// Master weight of w: itself if T is the accumulator's type and `separate` is false.
template <class T>
Tensor1<Acc<T>> master_of(Workbench& bench, Tensor1<T> w, bool separate) {
  if (!separate) return {};
  const auto master = bench.zeros<Acc<T>>(w.extent(0));
  for (Index i = 0; i < Index(w.extent(0)); ++i) master(i) = Acc<T>(w(i));
  return master;
}

// One step of a rule with one state, for one element.
using Plain = std::function<void(const StepOfWeight&, double g, double& state, double& w)>;

template <class T, class Rule>
void follows(const Rule& rule, const Plain& plain, Index n, double decay, bool separate) {
  using A = Acc<T>;
  Workbench bench;
  const auto w = bench.normal<T>(n);
  const auto master = master_of<T>(bench, w, separate);
  const auto state = bench.zeros<A>(n);
  Values want_w = values_of(w), want_state(std::size_t(n), 0.0);
  for (int t = 1; t <= 4; ++t) {
    const StepOfWeight step{0.01, decay, 0.5, double(t)};
    const auto g = bench.normal<A>(n);
    if (t == 3) fill<A>(bench.dev, g, 0);
    update_weights<T>(bench.dev, rule, on_device<A>(bench, rule, step), g, {state}, master, w);
    for (Index i = 0; i < n; ++i) plain(step, double(g(i)), want_state[std::size_t(i)], want_w[std::size_t(i)]);
  }
  EXPECT_LE(difference(values_of(state), want_state), tolerance<A>);
  EXPECT_LE(difference(separate ? values_of(master) : values_of(w), want_w), tolerance<A>);
  for (Index i = 0; separate && i < n; ++i) ASSERT_EQ(double(w(i)), double(T(master(i))));
}

template <class Rule>
void follows_in_every_type(const Rule& rule, const Plain& plain) {
  for (const double decay : {0.0, 0.1})
    for (const Index n : {Index(1), Index(1040), Index(40003)}) {
      follows<double>(rule, plain, n, decay, false);
      follows<float>(rule, plain, n, decay, true);
      follows<bf16>(rule, plain, n, decay, true);
    }
}

}  // namespace

TEST(update_rules, lion_follows_its_formula) {
  constexpr Lion rule{0.9, 0.99};
  follows_in_every_type(rule, [&](const StepOfWeight& step, double g, double& m, double& w) {
    g *= step.gradient_scale;
    const double mixed = rule.beta1 * m + (1 - rule.beta1) * g;
    w -= step.lr * ((mixed > 0 ? 1 : mixed < 0 ? -1 : 0) + step.weight_decay * w);
    m = rule.beta2 * m + (1 - rule.beta2) * g;
  });
}

TEST(update_rules, lion_keeps_weights_without_gradient) {
  Workbench bench;
  const auto g = bench.zeros<double>(10), m = bench.zeros<double>(10), w = bench.normal<double>(10);
  const Values before = values_of(w);
  constexpr Lion rule{0.9, 0.99};
  update_weights<double>(bench.dev, rule, on_device<double>(bench, rule, {0.1, 0, 1, 1}), g, {m}, {}, w);
  EXPECT_EQ(values_of(w), before);
}

TEST(update_rules, sgd_follows_its_formula) {
  for (const bool nesterov : {false, true}) {
    const Sgd rule{0.8, nesterov};
    follows_in_every_type(rule, [&](const StepOfWeight& step, double g, double& m, double& w) {
      g *= step.gradient_scale;
      m = rule.momentum * m + g;
      w -= step.lr * ((nesterov ? g + rule.momentum * m : m) + step.weight_decay * w);
    });
  }
}

namespace {

// One weight on one device, with its reference in plain loops.
template <class T>
struct LambWeight {
  using A = Acc<T>;
  Workbench& bench;
  Lamb rule;
  Tensor1<T> w;
  Tensor1<A> master, m, v;
  Values want_w, want_m, want_v;
  double norm_w = 0, norm_r = 0, ratio = 1;

  LambWeight(Workbench& b, const Lamb& l, Tensor1<T> weight, bool separate)
      : bench(b), rule(l), w(weight), master(master_of<T>(b, weight, separate)), m(b.zeros<A>(weight.extent(0))), v(b.zeros<A>(weight.extent(0))),
        want_w(values_of(weight)), want_m(want_w.size(), 0.0), want_v(want_w.size(), 0.0) {}
  Tensor1<A> exact() const {
    if constexpr (std::is_same_v<T, A>) return master.data() ? master : w;
    return master;
  }
  // `parts`: number of parts in which the weight is updated, whose sums are added as ranks do.
  void step(const StepOfWeight& s, Tensor1<A> g, bool counted, int parts) {
    const auto values = on_device<A>(bench, rule, s);
    const auto sums = bench.zeros<double>(2);
    const Index n = w.extent(0);
    const auto each = [&](const auto& f) {
      for (int k = 0; k < parts; ++k) f(n * k / parts, n * (k + 1) / parts - n * k / parts);
    };
    each([&](Index at, Index count) {
      lamb_moments<A>(bench.dev, rule, values, rows(g, at, count), rows(m, at, count), rows(v, at, count), rows(exact(), at, count),
                      counted ? sums : Tensor1<double>());
    });
    each([&](Index at, Index count) {
      lamb_step<T>(bench.dev, rule, values, counted ? Tensor1<const double>(sums) : Tensor1<const double>(), rows(m, at, count), rows(v, at, count),
                   master.data() ? rows(master, at, count) : master, rows(w, at, count));
    });
    plain(s, values_of(g), counted);
  }
  void plain(const StepOfWeight& s, const Values& g, bool counted) {
    const double c1 = 1 - std::pow(rule.beta1, s.number), c2 = 1 - std::pow(rule.beta2, s.number);
    Values r(want_w.size());
    double of_w = 0, of_r = 0;
    for (std::size_t i = 0; i < r.size(); ++i) {
      const double scaled = s.gradient_scale * g[i];
      want_m[i] = rule.beta1 * want_m[i] + (1 - rule.beta1) * scaled;
      want_v[i] = rule.beta2 * want_v[i] + (1 - rule.beta2) * scaled * scaled;
      r[i] = want_m[i] / c1 / (std::sqrt(want_v[i] / c2) + rule.epsilon) + s.weight_decay * want_w[i];
      of_w += want_w[i] * want_w[i], of_r += r[i] * r[i];
    }
    norm_w = std::sqrt(of_w), norm_r = std::sqrt(of_r);
    ratio = !counted || norm_w == 0 || norm_r == 0 ? 1 : norm_w / norm_r;
    if (counted && norm_w > 0 && norm_r > 0) {
      ratio = std::max(ratio, rule.min_ratio);
      if (rule.max_ratio > 0) ratio = std::min(ratio, rule.max_ratio);
    }
    for (std::size_t i = 0; i < r.size(); ++i) want_w[i] -= s.lr * ratio * r[i];
  }
};

template <class T>
void lamb_follows(std::mt19937& random, bool separate) {
  Workbench bench;
  const auto draw = [&](std::initializer_list<double> of) { return of.begin()[random() % of.size()]; };
  const Lamb rule{0.9, 0.99, 1e-6, draw({0, 0.5, 3}), draw({0, 4, 5})};
  const Index n = 1 + Index(random() % 50000);
  LambWeight<T> weight(bench, rule, bench.normal<T>(n), separate);
  const bool counted = random() % 4 > 0;
  for (int t = 1; t <= 3; ++t) {
    const auto g = bench.normal<Acc<T>>(n);
    weight.step({0.01, draw({0, 0.1}), 0.5, double(t)}, g, counted, 1 + int(random() % 3));
  }
  EXPECT_LE(difference(values_of(weight.exact()), weight.want_w), tolerance<Acc<T>>) << n << " elements, counted " << counted;
  EXPECT_LE(difference(values_of(weight.m), weight.want_m), tolerance<Acc<T>>);
  EXPECT_LE(difference(values_of(weight.v), weight.want_v), tolerance<Acc<T>>);
  for (Index i = 0; separate && i < n; ++i) ASSERT_EQ(double(weight.w(i)), double(T(weight.master(i))));
}

}  // namespace

TEST(update_rules, lamb_follows_its_formula_on_drawn_weights) {
  std::mt19937 random(seed_of_run());
  for (int i = 0; i < 6; ++i) {
    lamb_follows<double>(random, false);
    lamb_follows<float>(random, true);
    lamb_follows<bf16>(random, true);
  }
}

// Values of optax 0.2.8 in double precision.
TEST(update_rules, lamb_equals_published_values) {
  struct Row {
    double norm_w, norm_r, ratio, sum, squares, first, last;
  };
  const Row rows[] = {
      {2.4971076283681, 3.65258866540054, 0.683654212701846, -3.3467542635843, 6.14019786368548, 0.94784683376013, -0.646360256973228},
      {2.47794226399355, 3.32652904147358, 0.744903240915605, -3.32219251598943, 6.05289782532171, 0.939723841806762, -0.648637557290816},
      {2.46026377149315, 3.10278497198223, 0.79292113172812, -3.28778025104707, 5.96929889364815, 0.931242783779045, -0.653661665510517}};
  Workbench bench;
  const auto w = bench.zeros<double>(12), g = bench.zeros<double>(12);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 3; ++j) w(3 * i + j) = std::cos(0.3 + 0.9 * i + 0.5 * j);
  LambWeight<double> weight(bench, {0.9, 0.999, 1e-6}, w, false);
  for (int t = 1; t <= 3; ++t) {
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 3; ++j) g(3 * i + j) = std::sin(1 + 0.7 * i + 1.3 * j + 0.4 * t) + 0.1 * std::cos(2 * i - j + t);
    weight.step({0.01, 0.1, 1, double(t)}, g, true, 1);
    const Row& row = rows[t - 1];
    double sum = 0, squares = 0;
    for (Index i = 0; i < 12; ++i) sum += w(i), squares += w(i) * w(i);
    EXPECT_NEAR(weight.norm_w, row.norm_w, 1e-13);
    EXPECT_NEAR(weight.norm_r, row.norm_r, 1e-13);
    EXPECT_NEAR(weight.ratio, row.ratio, 1e-13);
    EXPECT_NEAR(sum, row.sum, 1e-13);
    EXPECT_NEAR(squares, row.squares, 1e-13);
    EXPECT_NEAR(w(0), row.first, 1e-14);
    EXPECT_NEAR(w(11), row.last, 1e-14);
  }
}

TEST(update_rules, lamb_of_zero_weights_has_ratio_one) {
  Workbench bench;
  const auto w = bench.zeros<double>(4), g = bench.zeros<double>(4);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) g(2 * i + j) = std::sin(1 + 0.7 * i + 1.3 * j + 0.4) + 0.1 * std::cos(2 * i - j + 1);
  LambWeight<double> weight(bench, {0.9, 0.999, 1e-6}, w, false);
  weight.step({0.01, 0.1, 1, 1}, g, true, 1);
  const double want[] = {0.00999999037981418, 0.00999998103837212, 0.00999998691461067, -0.00999996634773129};
  for (Index i = 0; i < 4; ++i) EXPECT_NEAR(w(i), -want[i], 1e-16);
}

// Without gradient and decay, the direction is zero.
TEST(update_rules, lamb_keeps_bits_without_gradient_and_decay) {
  Workbench bench;
  const auto w = bench.normal<float>(100);
  const Values before = values_of(w);
  LambWeight<float> weight(bench, {0.9, 0.999, 1e-6}, w, false);
  weight.step({0.01, 0, 1, 1}, bench.zeros<float>(100), true, 1);
  EXPECT_EQ(values_of(w), before);
}

}  // namespace gyr::testing::update_rules_suite
