// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/sum.hpp"
#include "kernels/ops/updates/weight_update.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::adamw_suite {

namespace {

constexpr Index n = 40003;  // more than two strips of the Kokkos kernels
constexpr int steps = 5;

constexpr AdamW rule{0.9, 0.95, 1e-8};

StepOfWeight at_step(int t, double decay) { return {0.01, decay, 0.5, double(t)}; }

template <class A>
Tensor1<const A> on_device(Workbench& bench, const StepOfWeight& step) {
  const UpdateValues values = rule.values(step);
  const auto there = bench.zeros<A>(Index(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) there(Index(i)) = A(values[i]);
  return there;
}

// Reference: the AdamW formula in kernels/ops/updates/weight_update.hpp, one parameter at a time.
void plain(const StepOfWeight& a, const std::vector<double>& g, std::vector<double>& m, std::vector<double>& v, std::vector<double>& w) {
  const double correction1 = 1 - std::pow(rule.beta1, a.number), correction2 = 1 - std::pow(rule.beta2, a.number);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double c = a.gradient_scale * g[i];
    m[i] = rule.beta1 * m[i] + (1 - rule.beta1) * c;
    v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * c * c;
    w[i] -= a.lr * (m[i] / correction1 / (std::sqrt(v[i] / correction2) + rule.epsilon) + a.weight_decay * w[i]);
  }
}

template <class T>
void follows_the_formula(double decay, bool with_master, Index n) {
  using A = Acc<T>;
  Workbench bench;
  const auto w = bench.normal<T>(n);
  const auto master = with_master ? bench.zeros<A>(n) : Tensor1<A>();
  for (Index i = 0; with_master && i < n; ++i) master(i) = A(w(i));
  const auto m = bench.zeros<A>(n), v = bench.zeros<A>(n);
  auto want_w = values_of(w);
  std::vector<double> want_m(n), want_v(n);
  for (int t = 1; t <= steps; ++t) {
    const auto g = bench.normal<A>(n);
    update_weights<T>(bench.dev, rule, on_device<A>(bench, at_step(t, decay)), g, {m, v}, master, w);
    plain(at_step(t, decay), values_of(g), want_m, want_v, want_w);
  }
  const double allowed = tolerance<A>;  // bf16 keeps its Adam moments and master weights in float
  EXPECT_LE(difference(values_of(m), want_m), allowed);
  EXPECT_LE(difference(values_of(v), want_v), allowed);
  EXPECT_LE(difference(with_master ? values_of(master) : values_of(w), want_w), allowed);
  for (Index i = 0; with_master && i < n; ++i) ASSERT_EQ(double(w(i)), double(T(master(i))));
}

}  // namespace

TEST(adamw, matches_formula_over_several_steps) {
  for (const double decay : {0.0, 0.1})
    for (const Index count : {n, Index(1040)}) {  // a count with a partial SIMD vector, and one of full vectors only
      follows_the_formula<double>(decay, false, count);
      follows_the_formula<float>(decay, false, count);
      follows_the_formula<float>(decay, true, count);
      follows_the_formula<bf16>(decay, true, count);
    }
}

// With bias correction the first update is -lr * sign(g), whatever the magnitude of g.
TEST(adamw, first_update_has_magnitude_of_learning_rate) {
  Workbench bench;
  const auto g = bench.normal<double>(100), m = bench.zeros<double>(100), v = bench.zeros<double>(100), w = bench.zeros<double>(100);
  const StepOfWeight a = at_step(1, 0);
  update_weights<double>(bench.dev, AdamW{rule.beta1, rule.beta2, 0}, on_device<double>(bench, a), g, {m, v}, {}, w);
  for (Index i = 0; i < 100; ++i) EXPECT_NEAR(w(i), g(i) > 0 ? -a.lr : a.lr, 1e-15);
}

TEST(adamw, missing_bf16_master_or_wrong_size_throws) {
  Workbench bench;
  const auto x = bench.zeros<float>(4);
  EXPECT_THROW(update_weights<bf16>(bench.dev, rule, on_device<float>(bench, at_step(1, 0)), x, {x, x}, {}, bench.zeros<bf16>(4)), Error);
  EXPECT_THROW(update_weights<float>(bench.dev, rule, on_device<float>(bench, at_step(1, 0)), x, {x, x}, {}, bench.zeros<float>(5)), Error);
}

TEST(adamw, sum_of_squares_is_accurate_at_any_address) {
  Workbench bench;
  for (const Index count : {Index(0), Index(1), Index(1000), n}) {
    const auto x = bench.normal<float>(count), shifted = rows(bench.zeros<float>(count + 1), 1, count);
    std::copy_n(x.data(), count, shifted.data());
    double want = 0;
    for (Index i = 0; i < count; ++i) want += double(x(i)) * double(x(i));
    const double got = sum_of_squares<float>(bench.dev, x);
    EXPECT_NEAR(got, want, 1e-12 * want);
    EXPECT_EQ(got, sum_of_squares<float>(bench.dev, shifted));
  }
  const auto large = bench.zeros<float>(10);
  std::fill_n(large.data(), 10, 1e30f);
  EXPECT_NEAR(sum_of_squares<float>(bench.dev, large) / 1e61, 1, 1e-6);  // exceeds the range of float
}

TEST(adamw, sum_of_squares_propagates_nan_and_infinity) {
  Workbench bench;
  const auto x = bench.normal<double>(n);
  x(n - 2) = INFINITY;
  EXPECT_EQ(sum_of_squares<double>(bench.dev, x), INFINITY);
  x(17000) = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares<double>(bench.dev, x)));
}

TEST(adamw, ordered_sum_adds_from_left_to_right) {
  Workbench bench;
  for (const Index count : {0, 1, 7, 256, 1000}) {
    const auto x = bench.normal<double>(count), sum = bench.zeros<double>(1);
    for (Index i = 0; i < count; i += 3) x(i) *= 1e10;  // so that any other order of summation rounds differently
    double in_order = 0;
    for (Index i = 0; i < count; ++i) in_order += x(i);
    sum(0) = 1e9;
    add_in_order(bench.dev, x, sum);
    EXPECT_EQ(sum(0), 1e9 + in_order) << count;
  }
}

TEST(adamw, dry_run_sum_takes_same_scratch_returns_zero) {
  Workbench bench;
  Device dry(true, 0), real(false, 1 << 16);
  Arena memory = Arena::dry_run(Memory::gradients);
  EXPECT_EQ(sum_of_squares<float>(dry, memory.tensor<float>(n)), 0);
  sum_of_squares<float>(real, bench.normal<float>(n));
  EXPECT_EQ(dry.scratch.high_water(), real.scratch.high_water());
  EXPECT_EQ(dry.flops(), real.flops());
}

}  // namespace gyr::testing::adamw_suite
