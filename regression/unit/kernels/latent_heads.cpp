// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/latent_heads.hpp"

#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::latent_heads_suite {

namespace {

constexpr Index positions = 40;

// Multi-head latent attention: heads, dimensions, rows and tensors drawn at random.
template <class T>
struct Drawn {
  using A = Acc<T>;
  LatentHeads s;
  Workbench bench;
  Index rows;
  Tensor1<std::int32_t> at;
  Rotation<A> table;
  Tensor2<T> expanded, shared, q, k, v;

  explicit Drawn(std::uint64_t seed, Index number) {
    const Stream random(seed, fmt::format("heads {}", number));
    auto between = [&, i = Index(0)](Index least, Index most) mutable { return least + Index(random.uniform(i++) * double(most - least + 1)); };
    s = {between(1, 5), between(1, 9), 2 * between(1, 20), between(1, 9), between(0, 1) == 0};
    rows = between(1, 150);
    at = Tensor1<std::int32_t>(bench.zeros<std::int32_t>(rows).data(), rows);
    for (Index r = 0; r < rows; ++r) at(r) = std::int32_t(between(0, positions - 1));
    table = {bench.zeros<A>(positions, s.rotary / 2), bench.zeros<A>(positions, s.rotary / 2)};
    rope_table<A>(bench.dev, 30, {}, table);
    expanded = bench.normal<T>(rows, s.heads * s.expanded()), shared = bench.normal<T>(rows, s.rotary),
    q = bench.normal<T>(rows, s.heads * s.width());
    k = bench.zeros<T>(rows, s.heads * s.width()), v = bench.zeros<T>(rows, s.heads * s.values);
  }
};

template <class T>
void agrees_with_plain_loops(Drawn<T>&& d) {
  const LatentHeads& s = d.s;
  const auto q = d.bench.copy(d.q);
  expand_heads<T>(d.bench.dev, s, d.table, d.at, d.expanded, d.shared, q, d.k, d.v);
  double worst = 0;
  const auto differ = [&](double a, double b) { worst = std::max(worst, std::abs(a - b)); };
  for (Index r = 0; r < d.rows; ++r)
    for (Index h = 0; h < s.heads; ++h) {
      for (Index i = 0; i < s.non_rotary; ++i) {
        differ(double(d.k(r, h * s.width() + i)), double(d.expanded(r, h * s.expanded() + i)));
        differ(double(q(r, h * s.width() + i)), double(d.q(r, h * s.width() + i)));
      }
      for (Index i = 0; i < s.values; ++i) differ(double(d.v(r, h * s.values + i)), double(d.expanded(r, h * s.expanded() + s.non_rotary + i)));
      for (Index j = 0; j < s.rotary / 2; ++j) {
        const Index a = s.neighbours ? 2 * j : j, b = s.neighbours ? 2 * j + 1 : j + s.rotary / 2, first = h * s.width() + s.non_rotary;
        const double angle = double(d.at(r)) * std::pow(30.0, -2.0 * double(j) / double(s.rotary)), c = std::cos(angle), e = std::sin(angle);
        const auto rotated = [&](double x, double y, double u, double w) { differ(u, x * c - y * e), differ(w, y * c + x * e); };
        rotated(double(d.q(r, first + a)), double(d.q(r, first + b)), double(q(r, first + a)), double(q(r, first + b)));
        rotated(double(d.shared(r, a)), double(d.shared(r, b)), double(d.k(r, first + a)), double(d.k(r, first + b)));
      }
    }
  EXPECT_LE(worst, 20 * tolerance<T>) << s.heads << " heads, non-rotary dimensions " << s.non_rotary << ", rotary dimensions " << s.rotary;
}

// Adjoint identity of a linear map A: <y, A x> = <A' y, x>.
template <class T>
void backward_is_the_transpose(Drawn<T>&& d) {
  using A = Acc<T>;
  const LatentHeads& s = d.s;
  const auto dq = d.bench.template normal<A>(d.rows, s.heads * s.width()), dk = d.bench.template normal<A>(d.rows, s.heads * s.width()),
             dv = d.bench.template normal<A>(d.rows, s.heads * s.values);
  const auto before = d.bench.template zeros<T>(d.rows, s.heads * s.width()), down = d.bench.template zeros<T>(d.rows, s.heads * s.expanded()),
             dshared = d.bench.template zeros<T>(d.rows, s.rotary);
  expand_heads_backward<T>(d.bench.dev, s, d.table, d.at, dq, dk, dv, before, down, dshared);
  const auto product = [](const auto& x, const auto& y) {
    double sum = 0;
    for (std::size_t i = 0; i < x.span(); ++i) sum += double(x.data()[i]) * double(y.data()[i]);
    return sum;
  };
  const double back = product(before, d.q) + product(down, d.expanded) + product(dshared, d.shared);
  expand_heads<T>(d.bench.dev, s, d.table, d.at, d.expanded, d.shared, d.q, d.k, d.v);
  const double forth = product(dq, d.q) + product(dk, d.k) + product(dv, d.v);
  EXPECT_NEAR(back, forth, 20 * tolerance<T> * std::sqrt(double(d.q.span() + d.k.span() + d.v.span())));
}

}  // namespace

TEST(latent_heads, match_plain_loops) {
  const std::uint64_t seed = gyr::testing::seed_of_run();
  for (Index i = 0; i < 20; ++i) {
    agrees_with_plain_loops(Drawn<double>(seed, i));
    agrees_with_plain_loops(Drawn<float>(seed, i));
    agrees_with_plain_loops(Drawn<bf16>(seed, i));
  }
}

TEST(latent_heads, backward_is_the_transpose) {
  const std::uint64_t seed = gyr::testing::seed_of_run();
  for (Index i = 0; i < 20; ++i) {
    backward_is_the_transpose(Drawn<double>(seed, i));
    backward_is_the_transpose(Drawn<float>(seed, i));
    backward_is_the_transpose(Drawn<bf16>(seed, i));
  }
}

}  // namespace gyr::testing::latent_heads_suite
