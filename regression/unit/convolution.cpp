// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/convolution.hpp"

#include "regression/numbers.hpp"

using namespace gyr;
using namespace gyr::testing;

namespace {

struct Case {
  Index batch = 2, length = 9, channels = 5, taps = 4;
  bool with_bias = true, with_before = true;
  Index rows() const { return batch * length; }
};

struct Arguments {
  Values x, w, bias, before;
  explicit Arguments(const Case& s)
      : x(numbers(s.rows() * s.channels, 1)),
        w(numbers(s.channels * s.taps, 2)),
        bias(numbers(s.channels, 3)),
        before(numbers(s.batch * (s.taps - 1) * s.channels, 4)) {}
};

struct Gradients {
  Values x, w, bias, before;
};

// The formula of the header, one element at a time.
Values oracle(const Case& s, const Arguments& a) {
  Values y(s.rows() * s.channels);
  for (Index b = 0; b < s.batch; ++b)
    for (Index t = 0; t < s.length; ++t)
      for (Index j = 0; j < s.channels; ++j) {
        double c = s.with_bias ? a.bias[j] : 0;
        for (Index k = 0; k < s.taps; ++k) {
          const Index at = t - (s.taps - 1) + k;
          const double in = at >= 0         ? a.x[(b * s.length + at) * s.channels + j]
                            : s.with_before ? a.before[(b * (s.taps - 1) + at + s.taps - 1) * s.channels + j]
                                            : 0;
          c += a.w[j * s.taps + k] * in;
        }
        y[(b * s.length + t) * s.channels + j] = c / (1 + std::exp(-c));
      }
  return y;
}

template <class T>
Tensor3<T> window(const Case& s, Block<T>& before) {
  return s.with_before ? before.tensor(s.batch, s.taps - 1, s.channels) : Tensor3<T>();
}

template <class T>
Values forward(Device& dev, const Case& s, const Arguments& a) {
  using A = Acc<T>;
  Block<T> x(s.rows(), s.channels, a.x, 2), y(s.rows(), s.channels, {}, 3), before(1, a.before.size(), a.before);
  Block<A> w(s.channels, s.taps, a.w), bias(1, s.channels, a.bias);
  convolution<T>(dev, s.batch, x.matrix(), w.tensor(), s.with_bias ? bias.vector() : Tensor1<A>(), window(s, before),
                 y.matrix());
  return y.values();
}

// The weights' gradients start from ones, which are taken off again: they must have been added to.
template <class T>
Gradients backward(Device& dev, const Case& s, const Arguments& a, const Values& dout) {
  using A = Acc<T>;
  Block<T> x(s.rows(), s.channels, a.x, 2), dy(s.rows(), s.channels, dout, 1), dx(s.rows(), s.channels, {}, 3);
  Block<T> before(1, a.before.size(), a.before), dbefore(1, a.before.size());
  Block<A> w(s.channels, s.taps, a.w), bias(1, s.channels, a.bias);
  Block<A> dw(s.channels, s.taps, Values(a.w.size(), 1)), dbias(1, s.channels, Values(a.bias.size(), 1));
  convolution_backward<T>(dev, s.batch, dy.matrix(), x.matrix(), w.tensor(), s.with_bias ? bias.vector() : Tensor1<A>(),
                          window(s, before), dx.matrix(), dw.tensor(), s.with_bias ? dbias.vector() : Tensor1<A>(),
                          window(s, dbefore));
  Gradients g{dx.values(), dw.values(), dbias.values(), dbefore.values()};
  for (Values* v : {&g.w, &g.bias})
    for (double& e : *v) e -= 1;
  return g;
}

std::vector<Case> cases() {
  return {{2, 9, 5, 4, true, true}, {1, 9, 3, 4, false, false}, {2, 2, 3, 4, true, true},    {3, 1, 2, 4, true, false},
          {2, 7, 4, 2, true, true}, {1, 5, 2, 1, true, false},  {1, 300, 261, 4, true, true}};  // the last one has
                                                                                                // edges of blocks
}

}  // namespace

TEST(convolution, equals_its_formula) {
  for (const Case& s : cases()) {
    Device dev(false, 1 << 24);
    const Arguments a(s);
    expect_near(forward<double>(dev, s, a), oracle(s, a), 1e-13);
  }
}

TEST(convolution, gradient_is_the_central_difference) {
  for (const Case& s : cases()) {
    if (s.channels > 100) continue;
    Device dev(false, 1 << 24);
    const Arguments a(s);
    const Values dout = numbers(s.rows() * s.channels, 9);
    const Gradients g = backward<double>(dev, s, a, dout);
    const auto check = [&](Values Arguments::*input, const Values& gradient, const char* what) {
      const auto f = [&](const Values& v) {
        Arguments moved = a;
        moved.*input = v;
        return dot(oracle(s, moved), dout);
      };
      expect_gradient(f, a.*input, gradient, what);
    };
    check(&Arguments::x, g.x, "x");
    check(&Arguments::w, g.w, "w");
    if (s.with_bias) check(&Arguments::bias, g.bias, "bias");
    if (s.with_before) check(&Arguments::before, g.before, "before");
  }
}

// Forward is linear in the taps up to SiLU, so many channels are checked through one directional derivative.
TEST(convolution, gradient_holds_across_blocks) {
  const Case s = cases().back();
  Device dev(false, 1 << 24);
  const Arguments a(s);
  const Values dout = numbers(s.rows() * s.channels, 9);
  const Gradients g = backward<double>(dev, s, a, dout);
  const double h = 1e-6;
  const auto moved = [&](double step) {
    Arguments m = a;
    for (const auto part : {&Arguments::x, &Arguments::w, &Arguments::bias, &Arguments::before}) {
      const Values direction = numbers((m.*part).size(), 77);
      for (std::size_t i = 0; i < direction.size(); ++i) (m.*part)[i] += step * direction[i];
    }
    return dot(oracle(s, m), dout);
  };
  const double analytic = dot(g.x, numbers(g.x.size(), 77)) + dot(g.w, numbers(g.w.size(), 77)) +
                          dot(g.bias, numbers(g.bias.size(), 77)) + dot(g.before, numbers(g.before.size(), 77));
  EXPECT_NEAR((moved(h) - moved(-h)) / (2 * h), analytic, 1e-6 * std::abs(analytic));
}

TEST(convolution, float_and_bf16_follow_double) {
  const Case s{2, 20, 37, 4, true, true};
  Device dev(false, 1 << 24);
  Arguments a(s);
  a.x = rounded<bf16>(a.x), a.before = rounded<bf16>(a.before), a.w = rounded<float>(a.w),
  a.bias = rounded<float>(a.bias);
  const Values dout = rounded<bf16>(numbers(s.rows() * s.channels, 9));
  const Values y = oracle(s, a);
  const Gradients g = backward<double>(dev, s, a, dout), f = backward<float>(dev, s, a, dout),
                  h = backward<bf16>(dev, s, a, dout);
  expect_near(forward<float>(dev, s, a), y, 1e-5);
  expect_near(forward<bf16>(dev, s, a), y, 2e-2);
  for (const auto part : {&Gradients::x, &Gradients::w, &Gradients::bias, &Gradients::before}) {
    expect_near(f.*part, g.*part, 1e-5);
    expect_near(h.*part, g.*part, 2e-2);
  }
}

// A sequence may be cut anywhere if the tail of the first piece goes before the second.
TEST(convolution, two_calls_with_the_tail_equal_one) {
  const Case whole{1, 9, 5, 4, true, true};
  const Arguments a(whole);
  Device dev(false, 1 << 24);
  const Values y = forward<double>(dev, whole, a);
  for (Index cut = 1; cut < whole.length; ++cut) {  // pieces shorter than K-1 included
    Case first = whole, second = whole;
    first.length = cut, second.length = whole.length - cut;
    Arguments head = a, rest = a;
    head.x.assign(a.x.begin(), a.x.begin() + cut * 5);
    rest.x.assign(a.x.begin() + cut * 5, a.x.end());
    Block<double> x(cut, 5, head.x, 2), carried(1, a.before.size(), a.before);
    const auto window = carried.tensor(1, 3, 5);
    convolution_tail<double>(dev, 1, x.matrix(), window, window);  // in place
    rest.before = carried.values();
    Values pieces = forward<double>(dev, first, head);
    const Values second_piece = forward<double>(dev, second, rest);
    pieces.insert(pieces.end(), second_piece.begin(), second_piece.end());
    EXPECT_EQ(pieces, y) << "cut at " << cut;
  }
}

TEST(convolution, tail_without_history_starts_with_zeros) {
  Device dev(false, 1 << 20);
  Block<float> x(2, 2, {1, 2, 3, 4}), after(3, 2);
  convolution_tail<float>(dev, 1, x.matrix(), {}, after.tensor(1, 3, 2));
  EXPECT_EQ(after.values(), (Values{0, 0, 1, 2, 3, 4}));
}

TEST(convolution, future_tokens_do_not_reach_the_past) {
  const Case s{1, 300, 5, 4, true, true};
  Device dev(false, 1 << 24);
  Arguments a(s);
  const Values y = forward<float>(dev, s, a);
  const Index t = 140;
  for (Index i = t * 5; i < Index(a.x.size()); ++i) a.x[i] = 3 * a.x[i] + 1;
  const Values z = forward<float>(dev, s, a);
  EXPECT_TRUE(std::equal(y.begin(), y.begin() + t * 5, z.begin()));
  EXPECT_NE(y[t * 5], z[t * 5]);
}

TEST(convolution, ghost_counts_what_runs) {
  const Case s{2, 20, 300, 4, true, true};
  const Arguments a(s);
  Device dev(false, 1 << 24), ghost(true, 0);
  for (Device* d : {&dev, &ghost}) forward<bf16>(*d, s, a), backward<bf16>(*d, s, a, numbers(s.rows() * s.channels, 9));
  EXPECT_EQ(dev.flops(), ghost.flops());
  EXPECT_EQ(dev.scratch.high_water(), ghost.scratch.high_water());
  EXPECT_GT(dev.flops(), 0);
}
