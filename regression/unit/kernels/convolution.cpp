// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/convolution.hpp"

#include "regression/support/documents.hpp"
#include "regression/support/values.hpp"

namespace gyr::testing::convolution_suite {

namespace {

struct Case {
  Index batch = 2, seq_length = 9, channels = 5, conv_kernel = 4;
  bool with_bias = true, with_before = true;
  std::vector<std::int32_t> positions = {};  // position of each row in its packed document
  bool dense = false;                        // rows without gaps, aligned to SIMD vectors
  ConvolutionEnd end = ConvolutionEnd::silu;
  Documents documents() const { return positions.empty() ? Documents() : documents_of(positions); }
  Index rows() const { return batch * seq_length; }
  Index gap(Index gap) const { return dense ? 0 : gap; }
};

struct Arguments {
  Values x, w, bias, before;
  explicit Arguments(const Case& s)
      : x(random_values(s.rows() * s.channels, 1)), w(random_values(s.channels * s.conv_kernel, 2)), bias(random_values(s.channels, 3)),
        before(random_values(s.batch * (s.conv_kernel - 1) * s.channels, 4)) {}
};

struct Gradients {
  Values x, w, bias, before;
};

// Reference: the formula in kernels/ops/convolution.hpp, one element at a time.
Values oracle(const Case& s, const Arguments& a) {
  Values y(s.rows() * s.channels);
  for (Index b = 0; b < s.batch; ++b)
    for (Index t = 0; t < s.seq_length; ++t)
      for (Index j = 0; j < s.channels; ++j) {
        double c = s.with_bias ? a.bias[j] : 0;
        for (Index k = 0; k < s.conv_kernel; ++k) {
          const Index at = t - (s.conv_kernel - 1) + k;
          if (!s.positions.empty() && t - at > s.positions[b * s.seq_length + t]) continue;
          const double in = at >= 0         ? a.x[(b * s.seq_length + at) * s.channels + j]
                            : s.with_before ? a.before[(b * (s.conv_kernel - 1) + at + s.conv_kernel - 1) * s.channels + j]
                                            : 0;
          c += a.w[j * s.conv_kernel + k] * in;
        }
        y[(b * s.seq_length + t) * s.channels + j] = s.end == ConvolutionEnd::linear ? c : c / (1 + std::exp(-c));
      }
  return y;
}

template <class T>
Tensor3<T> window(const Case& s, Block<T>& before) {
  return s.with_before ? before.tensor(s.batch, s.conv_kernel - 1, s.channels) : Tensor3<T>();
}

template <class T>
Values forward(Device& dev, const Case& s, const Arguments& a) {
  using A = Acc<T>;
  Block<T> x(s.rows(), s.channels, a.x, s.gap(2)), y(s.rows(), s.channels, {}, s.gap(3)), before(1, a.before.size(), a.before);
  Block<A> w(s.channels, s.conv_kernel, a.w), bias(1, s.channels, a.bias);
  convolution<T>(dev, s.batch, x.matrix(), w.tensor(), s.with_bias ? bias.vector() : Tensor1<A>(), window(s, before), y.matrix(), s.documents(),
                 s.end);
  return y.values();
}

// Weight gradients start from ones, which are subtracted afterwards. This checks that the kernel accumulates.
template <class T>
Gradients backward(Device& dev, const Case& s, const Arguments& a, const Values& dout) {
  using A = Acc<T>;
  Block<T> x(s.rows(), s.channels, a.x, s.gap(2)), dy(s.rows(), s.channels, dout, s.gap(1)), dx(s.rows(), s.channels, {}, s.gap(3));
  Block<T> before(1, a.before.size(), a.before), dbefore(1, a.before.size());
  Block<A> w(s.channels, s.conv_kernel, a.w), bias(1, s.channels, a.bias);
  Block<A> dw(s.channels, s.conv_kernel, Values(a.w.size(), 1)), dbias(1, s.channels, Values(a.bias.size(), 1));
  convolution_backward<T>(dev, s.batch, dy.matrix(), x.matrix(), w.tensor(), s.with_bias ? bias.vector() : Tensor1<A>(), window(s, before),
                          dx.matrix(), dw.tensor(), s.with_bias ? dbias.vector() : Tensor1<A>(), window(s, dbefore), s.documents(), s.end);
  Gradients g{dx.values(), dw.values(), dbias.values(), dbefore.values()};
  for (Values* v : {&g.w, &g.bias})
    for (double& e : *v) e -= 1;
  return g;
}

std::vector<Case> cases() {
  return {{2, 9, 5, 4, true, true},
          {1, 9, 3, 4, false, false},
          {2, 2, 3, 4, true, true},
          {3, 1, 2, 4, true, false},
          {2, 7, 4, 2, true, true},
          {1, 5, 2, 1, true, false},
          {1, 21, 3, 5, true, true},
          {2, 19, 2, 16, false, true},
          {2, 9, 4, 3, true, true},
          {2, 19, 24, 4, true, true, {}, true},
          {1, 150, 1040, 3, true, false, {}, true},
          {1, 300, 261, 4, true, true},
          {1, 40, 1030, 4, true, true}};  // cases at the edges of the kernel's segments and blocks
}

// Cases of a list, and the same without SiLU.
std::vector<Case> with_both_ends(std::vector<Case> list) {
  for (std::size_t i = 0, n = list.size(); i < n; ++i) list.push_back(list[i]), list.back().end = ConvolutionEnd::linear;
  return list;
}

std::vector<Case> packed_cases() {
  std::vector<Case> list;
  for (const Lengths& lengths : document_splits(19)) list.push_back({2, 19, 3, 4, true, false, positions_of(lengths, 2, 19)});
  Case running{1, 12, 3, 4, true, true, positions_of({1, 4, 7}, 1, 12)};
  running.positions[0] = 2;  // the first document began two tokens earlier
  list.push_back(running);
  list.push_back({1, 300, 261, 4, true, true, positions_of({100, 2, 27, 128, 300}, 1, 300)});
  list.push_back({1, 40, 16, 4, true, true, positions_of({5, 12, 13, 40}, 1, 40), true});
  list.push_back({1, 40, 3, 7, true, true, positions_of({5, 12, 13, 40}, 1, 40)});
  list.push_back({1, 40, 1030, 4, true, true, positions_of({5, 12, 13, 40}, 1, 40)});
  return list;
}

}  // namespace

TEST(convolution, matches_reference_formula) {
  for (const auto& set : {with_both_ends(cases()), with_both_ends(packed_cases())})
    for (const Case& s : set) {
      Device dev(false, 1 << 24);
      const Arguments a(s);
      expect_near(forward<double>(dev, s, a), oracle(s, a), 1e-13);
    }
}

void expect_central_differences(const std::vector<Case>& set) {
  for (const Case& s : set) {
    if (s.channels > 100) continue;
    Device dev(false, 1 << 24);
    const Arguments a(s);
    const Values dout = random_values(s.rows() * s.channels, 9);
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

TEST(convolution, gradient_is_the_central_difference) { expect_central_differences(with_both_ends(cases())); }
TEST(convolution, gradient_of_packed_documents_is_the_central_difference) { expect_central_differences(with_both_ends(packed_cases())); }

// Packed documents give the same bits as separate calls, and their weight gradients add up.
TEST(convolution, packed_documents_equal_separate_runs) {
  for (const Case& s : packed_cases()) {
    if (s.with_before) continue;
    Device dev(false, 1 << 24);
    const Arguments a(s);
    const Values dout = random_values(s.rows() * s.channels, 9), y = forward<double>(dev, s, a);
    const Gradients g = backward<double>(dev, s, a, dout);
    Values separate = y;
    Gradients h{g.x, Values(g.w.size(), 0), Values(g.bias.size(), 0), {}};
    for (const Extent& e : extents_of(s.positions, s.seq_length)) {
      Case one = s;
      one.batch = 1, one.seq_length = e.count, one.positions.clear();
      Arguments b = a;
      b.x = extract(a.x, e, s.seq_length, s.channels);
      put_back(forward<double>(dev, one, b), e, s.seq_length, s.channels, separate);
      const Gradients d = backward<double>(dev, one, b, extract(dout, e, s.seq_length, s.channels));
      put_back(d.x, e, s.seq_length, s.channels, h.x);
      for (std::size_t i = 0; i < d.w.size(); ++i) h.w[i] += d.w[i];
      for (std::size_t i = 0; i < d.bias.size(); ++i) h.bias[i] += d.bias[i];
    }
    EXPECT_EQ(y, separate);
    EXPECT_EQ(g.x, h.x);
    expect_near(g.w, h.w, 1e-13, "w");
    expect_near(g.bias, h.bias, 1e-13, "bias");
  }
}

TEST(convolution, one_document_per_sequence_changes_no_bit) {
  for (Case s : cases()) {
    Device dev(false, 1 << 24);
    const Arguments a(s);
    const Values dout = random_values(s.rows() * s.channels, 9), y = forward<float>(dev, s, a);
    const Gradients g = backward<float>(dev, s, a, dout);
    s.positions = positions_of({s.seq_length}, s.batch, s.seq_length);
    for (Index r = 0; s.with_before && r < s.rows(); ++r) s.positions[r] += s.conv_kernel;  // the first document includes the tokens in `before`
    EXPECT_EQ(forward<float>(dev, s, a), y);
    const Gradients h = backward<float>(dev, s, a, dout);
    EXPECT_EQ(g.x, h.x);
    EXPECT_EQ(g.w, h.w);
    EXPECT_EQ(g.bias, h.bias);
    if (s.with_before) {
      EXPECT_EQ(g.before, h.before);
    }
  }
}

// Checks the gradients of many channels by one directional derivative along all inputs. Forward is linear in the
// weights up to SiLU.
void expect_slope(const Case& s) {
  Device dev(false, 1 << 24);
  const Arguments a(s);
  const Values dout = random_values(s.rows() * s.channels, 9);
  const Gradients g = backward<double>(dev, s, a, dout);
  const double h = 1e-6;
  const auto moved = [&](double step) {
    Arguments m = a;
    for (const auto part : {&Arguments::x, &Arguments::w, &Arguments::bias, &Arguments::before}) {
      const Values direction = random_values((m.*part).size(), 77);
      for (std::size_t i = 0; i < direction.size(); ++i) (m.*part)[i] += step * direction[i];
    }
    return dot(oracle(s, m), dout);
  };
  const double analytic = dot(g.x, random_values(g.x.size(), 77)) + dot(g.w, random_values(g.w.size(), 77)) +
                          dot(g.bias, random_values(g.bias.size(), 77)) + dot(g.before, random_values(g.before.size(), 77));
  EXPECT_NEAR((moved(h) - moved(-h)) / (2 * h), analytic, 1e-6 * std::abs(analytic));
}

TEST(convolution, gradient_matches_derivative_across_blocks) { expect_slope(cases().back()); }
TEST(convolution, packed_document_gradient_matches_derivative_across_blocks) { expect_slope(packed_cases().back()); }

void expect_float_and_bf16_follow_double(const Case& s) {
  Device dev(false, 1 << 24);
  Arguments a(s);
  a.x = rounded<bf16>(a.x), a.before = rounded<bf16>(a.before), a.w = rounded<float>(a.w), a.bias = rounded<float>(a.bias);
  const Values dout = rounded<bf16>(random_values(s.rows() * s.channels, 9));
  const Values y = oracle(s, a);
  const Gradients g = backward<double>(dev, s, a, dout), f = backward<float>(dev, s, a, dout), h = backward<bf16>(dev, s, a, dout);
  expect_near(forward<float>(dev, s, a), y, 1e-5);
  expect_near(forward<bf16>(dev, s, a), y, 2e-2);
  for (const auto part : {&Gradients::x, &Gradients::w, &Gradients::bias, &Gradients::before}) {
    expect_near(f.*part, g.*part, 1e-5);
    expect_near(h.*part, g.*part, 2e-2);
  }
}

TEST(convolution, float_and_bf16_follow_double) {
  expect_float_and_bf16_follow_double({2, 20, 37, 4, true, true});
  expect_float_and_bf16_follow_double({2, 20, 37, 4, true, true, positions_of({7, 1, 12}, 2, 20)});
  expect_float_and_bf16_follow_double({1100, 70, 4, 4, true, true, {}, true});  // with 1100 sequences, blocks of the GPU kernel have longer segments
}

// A sequence may be split anywhere if the tail of the first piece is passed to the second one as `before`.
TEST(convolution, two_calls_with_tail_equal_one_call) {
  const Case full{1, 9, 5, 4, true, true};
  const Arguments a(full);
  Device dev(false, 1 << 24);
  const Values y = forward<double>(dev, full, a);
  for (Index split_at = 1; split_at < full.seq_length; ++split_at) {  // includes pieces shorter than K-1
    Case first = full, second = full;
    first.seq_length = split_at, second.seq_length = full.seq_length - split_at;
    Arguments head = a, rest = a;
    head.x.assign(a.x.begin(), a.x.begin() + split_at * 5);
    rest.x.assign(a.x.begin() + split_at * 5, a.x.end());
    Block<double> x(split_at, 5, head.x, 2), carried(1, a.before.size(), a.before);
    const auto window = carried.tensor(1, 3, 5);
    convolution_tail<double>(dev, 1, x.matrix(), window, window);  // input and output window are the same
    rest.before = carried.values();
    Values pieces = forward<double>(dev, first, head);
    const Values second_piece = forward<double>(dev, second, rest);
    pieces.insert(pieces.end(), second_piece.begin(), second_piece.end());
    EXPECT_EQ(pieces, y) << "cut at " << split_at;
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

TEST(convolution, dry_run_counts_equal_real_run) {
  const Case s{2, 20, 300, 4, true, true};
  const Arguments a(s);
  Device dev(false, 1 << 24), dry(true, 0);
  for (Device* d : {&dev, &dry}) forward<bf16>(*d, s, a), backward<bf16>(*d, s, a, random_values(s.rows() * s.channels, 9));
  EXPECT_EQ(dev.flops(), dry.flops());
  EXPECT_EQ(dev.scratch.high_water(), dry.scratch.high_water());
  EXPECT_GT(dev.flops(), 0);
}

}  // namespace gyr::testing::convolution_suite
