// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/gate.hpp"

#include "regression/support/tensors.hpp"

namespace gyr::testing::gate_suite {

namespace {

constexpr Index height = 140;         // more than two blocks of rows
constexpr Index widths[] = {30, 48};  // multiples of 1, 2 and 3; the second one fills whole SIMD vectors
constexpr Index wide = 2 * 8448;      // rows of bf16 that a GPU block holds in two or four packs per thread
constexpr double eps = 1e-2;
constexpr GateOrder orders[] = {GateOrder::gate_first, GateOrder::norm_first, GateOrder::none};

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// y, z and dz are column ranges of wider matrices, as with projections whose outputs are adjacent.
template <class T>
struct Inputs {
  Inputs(Workbench& bench, Index rows, Index channels)
      : padding(channels % 16 == 0 ? 16 : 2), wide_y(bench.normal<T>(rows, channels + 2 * padding)), wide_z(bench.normal<T>(rows, 2 * channels)),
        wide_dz(bench.zeros<T>(rows, channels + 4 * padding)), y(columns(wide_y, padding, channels)), z(columns(wide_z, channels, channels)),
        dz(columns(wide_dz, 2 * padding, channels)), dout(bench.normal<T>(rows, channels)), out(bench.normal<T>(rows, channels)),
        dy(bench.normal<T>(rows, channels)), w(bench.normal<Acc<T>>(channels)), dw(bench.zeros<Acc<T>>(channels)) {}
  Index padding;  // number of columns next to y on each side
  Tensor2<T> wide_y, wide_z, wide_dz;
  Matrix<T> y, z, dz;
  Tensor2<T> dout, out, dy;
  Tensor1<Acc<T>> w, dw;
};

// The gated norm of one rank, forward and backward, with its row statistics.
template <class T>
void forward(Workbench& bench, GateOrder order, const Inputs<T>& in, Tensor2<Acc<T>> squares) {
  gated_norm_squares<T>(bench.dev, order, in.y, in.z, squares);
  gated_norm<T>(bench.dev, order, in.y, in.z, in.w, squares, in.y.columns / squares.extent(1), eps, in.out);
}
template <class T>
void backward(Workbench& bench, GateOrder order, const Inputs<T>& in, Tensor2<Acc<T>> squares, Tensor2<Acc<T>> dots) {
  const Index width = in.y.columns / squares.extent(1);
  gated_norm_dots<T>(bench.dev, order, in.dout, in.y, in.z, in.w, squares, width, eps, dots, in.dw);
  gated_norm_backward<T>(bench.dev, order, in.dout, in.y, in.z, in.w, squares, dots, width, eps, in.dy, in.dz);
}

struct Plain {
  std::vector<double> out, dy, dz, dw;
};

// Reference in plain loops, by the chain rule through v = y silu(z) or y, n = w v / rms, out = n or n silu(z). Without a gate dz stays 0.
template <class T>
Plain plain(GateOrder order, const Inputs<T>& in, Index groups) {
  const Index height = in.y.rows;
  const bool gate_first = order == GateOrder::gate_first, norm_first = order == GateOrder::norm_first;
  const Index channels = in.y.columns, width = channels / groups;
  Plain p{std::vector<double>(height * channels), std::vector<double>(height * channels), std::vector<double>(height * channels),
          std::vector<double>(channels)};
  for (Index r = 0; r < height; ++r)
    for (Index g = 0; g < groups; ++g) {
      std::vector<double> v(width), dn(width);
      double squares = 0, product = 0;
      for (Index i = 0; i < width; ++i) {
        const double y = double(in.y(r, g * width + i)), z = double(in.z(r, g * width + i)), swish = z * sigmoid_of(z);
        v[i] = gate_first ? y * swish : y;
        dn[i] = double(in.dout(r, g * width + i)) * (norm_first ? swish : 1);
        squares += v[i] * v[i];
      }
      const double k = 1 / std::sqrt(squares / width + eps);
      for (Index i = 0; i < width; ++i) product += dn[i] * double(in.w(g * width + i)) * v[i] * k;
      for (Index i = 0; i < width; ++i) {
        const Index e = g * width + i, at = r * channels + e;
        const double y = double(in.y(r, e)), z = double(in.z(r, e)), w = double(in.w(e)), sig = sigmoid_of(z);
        const double slope = sig * (1 + z * (1 - sig)), n = w * v[i] * k, dv = k * (dn[i] * w - v[i] * k * product / width);
        p.out[at] = norm_first ? n * z * sig : n;
        p.dy[at] = gate_first ? dv * z * sig : dv;
        p.dz[at] = gate_first ? dv * y * slope : norm_first ? double(in.dout(r, e)) * n * slope : 0;
        p.dw[e] += dn[i] * v[i] * k;
      }
    }
  return p;
}

template <class T>
void gated_norm_agrees_with_plain_loops(GateOrder order, Index groups, Index channels, Index height = gate_suite::height) {
  using A = Acc<T>;
  Workbench bench;
  const Inputs<T> in(bench, height, channels);
  const auto squares = bench.zeros<A>(height, groups), dots = bench.zeros<A>(height, groups);
  Plain want = plain(order, in, groups);
  forward(bench, order, in, squares);
  backward(bench, order, in, squares, dots);
  EXPECT_LE(difference(values_of(in.out), want.out), tolerance<T>);
  EXPECT_LE(difference(values_of(in.dy), want.dy), tolerance<T>);
  EXPECT_LE(difference(values_of(in.dz), want.dz), tolerance<T>);
  EXPECT_LE(difference(values_of(in.dw), want.dw), tolerance<A>);
  for (Index r = 0; r < height; ++r)
    for (const Index c : {Index(0), 2 * in.padding - 1, 2 * in.padding + channels})
      ASSERT_EQ(float(in.wide_dz(r, c)), 0);  // columns next to dz stay zero

  const auto first = bench.copy(in.dw);
  backward(bench, order, in, squares, dots);  // dw accumulates the same gradient again
  for (double& v : want.dw) v *= 2;
  EXPECT_LE(difference(values_of(in.dw), want.dw), tolerance<A>);
  std::fill_n(in.dw.data(), channels, A(0));
  backward(bench, order, in, squares, dots);
  EXPECT_TRUE(same_bits(in.dw, first));
}

template <class T>
void gate_agrees_with_plain_loops(Index channels) {
  Workbench bench;
  const Inputs<T> in(bench, height, channels);
  std::vector<double> out, dy, dz;
  for (Index r = 0; r < height; ++r)
    for (Index e = 0; e < channels; ++e) {
      const double y = double(in.y(r, e)), z = double(in.z(r, e)), d = double(in.dout(r, e)), sig = sigmoid_of(z);
      out.push_back(y * z * sig);
      dy.push_back(d * z * sig);
      dz.push_back(d * y * sig * (1 + z * (1 - sig)));
    }
  gate<T>(bench.dev, in.y, in.z, in.out);
  gate_backward<T>(bench.dev, in.dout, in.y, in.z, in.dy, in.dz);
  EXPECT_LE(difference(values_of(in.out), out), tolerance<T>);
  EXPECT_LE(difference(values_of(in.dy), dy), tolerance<T>);
  EXPECT_LE(difference(values_of(in.dz), dz), tolerance<T>);
}

}  // namespace

TEST(gate, matches_reference_loops) {
  for (const Index channels : widths) {
    gate_agrees_with_plain_loops<double>(channels);
    gate_agrees_with_plain_loops<float>(channels);
    gate_agrees_with_plain_loops<bf16>(channels);
  }
}

TEST(gate, gradients_equal_finite_differences) {
  Workbench bench;
  const Inputs<double> in(bench, 4, 6);
  const auto loss = [&] {
    gate<double>(bench.dev, in.y, in.z, in.out);
    return dot(values_of(in.out), values_of(in.dout));
  };
  gate_backward<double>(bench.dev, in.dout, in.y, in.z, in.dy, in.dz);
  const auto dwide_y = slope(flat(in.wide_y), loss), dwide_z = slope(flat(in.wide_z), loss);
  for (Index r = 0; r < 4; ++r)
    for (Index e = 0; e < 6; ++e) {
      EXPECT_NEAR(in.dy(r, e), dwide_y[r * 10 + 2 + e], 1e-9);
      EXPECT_NEAR(in.dz(r, e), dwide_z[r * 12 + 6 + e], 1e-9);
    }
}

TEST(gate, gated_norm_matches_reference_loops) {
  for (const GateOrder order : orders)
    for (const Index groups : {1, 2, 3})
      for (const Index channels : widths) {
        SCOPED_TRACE(fmt::format("order {} groups {} channels {}", int(order), groups, channels));
        gated_norm_agrees_with_plain_loops<double>(order, groups, channels);
        gated_norm_agrees_with_plain_loops<float>(order, groups, channels);
        gated_norm_agrees_with_plain_loops<bf16>(order, groups, channels);
      }
}

TEST(gate, gated_norm_of_wide_rows_matches_reference_loops) {
  for (const Index groups : {1, 2, 3}) gated_norm_agrees_with_plain_loops<bf16>(GateOrder::gate_first, groups, wide, 11);
  gated_norm_agrees_with_plain_loops<double>(GateOrder::norm_first, 4, wide, 11);
}

TEST(gate, gated_norm_gradients_equal_finite_differences) {
  for (const GateOrder order : orders)
    for (const Index groups : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("order {} groups {}", int(order), groups));
      Workbench bench;
      const Inputs<double> in(bench, 4, 6);
      const auto squares = bench.zeros<double>(4, groups), dots = bench.zeros<double>(4, groups);
      const auto loss = [&] {
        forward(bench, order, in, squares);
        return dot(values_of(in.out), values_of(in.dout));
      };
      loss();
      backward(bench, order, in, squares, dots);
      const auto dwide_y = slope(flat(in.wide_y), loss), dwide_z = slope(flat(in.wide_z), loss);
      for (Index r = 0; r < 4; ++r)
        for (Index e = 0; e < 6; ++e) {
          EXPECT_NEAR(in.dy(r, e), dwide_y[r * 10 + 2 + e], 1e-8);
          EXPECT_NEAR(in.dz(r, e), dwide_z[r * 12 + 6 + e], 1e-8);
        }
      EXPECT_LE(difference(values_of(in.dw), slope(in.w, loss)), 1e-8);
    }
}

// Two ranks hold half of the channels of one norm group each. Their sums are added as an all-reduce would.
TEST(gate, norm_group_may_span_ranks) {
  const Index channels = widths[0];
  for (const GateOrder order : orders) {
    Workbench bench;
    const Inputs<double> full(bench, height, channels);
    const auto squares = bench.zeros<double>(height, 1), dots = bench.zeros<double>(height, 1);
    forward(bench, order, full, squares);
    backward(bench, order, full, squares, dots);

    const Index half = channels / 2;
    std::vector<Inputs<double>> ranks;
    const auto squares_sum = bench.zeros<double>(height, 1), dots_sum = bench.zeros<double>(height, 1), part = bench.zeros<double>(height, 1);
    const auto add_part = [&](Tensor2<double> sum) {
      for (Index r = 0; r < height; ++r) sum(r, 0) += part(r, 0);
    };
    for (const Index first : {Index(0), half}) {
      Inputs<double>& rank = ranks.emplace_back(bench, height, half);
      rank.y = columns(full.y, first, half);
      rank.z = columns(full.z, first, half);
      rank.w = rows(full.w, first, half);
      for (Index r = 0; r < height; ++r)
        for (Index e = 0; e < half; ++e) rank.dout(r, e) = full.dout(r, first + e);
      gated_norm_squares<double>(bench.dev, order, rank.y, rank.z, part);
      add_part(squares_sum);
    }
    EXPECT_LE(difference(values_of(squares_sum), values_of(squares)), 1e-13);
    for (const auto& rank : ranks) {
      gated_norm<double>(bench.dev, order, rank.y, rank.z, rank.w, squares_sum, channels, eps, rank.out);
      gated_norm_dots<double>(bench.dev, order, rank.dout, rank.y, rank.z, rank.w, squares_sum, channels, eps, part, rank.dw);
      add_part(dots_sum);
    }
    EXPECT_LE(difference(values_of(dots_sum), values_of(dots)), 1e-13);
    for (int i = 0; i < 2; ++i) {
      const auto& rank = ranks[i];
      gated_norm_backward<double>(bench.dev, order, rank.dout, rank.y, rank.z, rank.w, squares_sum, dots_sum, channels, eps, rank.dy, rank.dz);
      EXPECT_LE(difference(values_of(Matrix<double>(rank.out)), values_of(columns(full.out, i * half, half))), 1e-12);
      EXPECT_LE(difference(values_of(Matrix<double>(rank.dy)), values_of(columns(full.dy, i * half, half))), 1e-12);
      EXPECT_LE(difference(values_of(rank.dz), values_of(columns(full.dz, i * half, half))), 1e-12);
      EXPECT_LE(difference(values_of(rank.dw), values_of(rows(full.dw, i * half, half))), 1e-12);
    }
  }
}

TEST(gate, indivisible_channel_count_is_an_internal_error) {
  Workbench bench;
  const Inputs<float> in(bench, 3, 10);
  EXPECT_THROW(gated_norm_squares<float>(bench.dev, GateOrder::gate_first, in.y, in.z, bench.zeros<float>(3, 4)), Error);
}

}  // namespace gyr::testing::gate_suite
