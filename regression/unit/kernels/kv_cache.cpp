// SPDX-License-Identifier: BSD-3-Clause
// Decoding token by token with a KV cache gives the same result as attention over the full sequences, no matter which
// sequences advance together.
#include "kernels/ops/kv_cache.hpp"

#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::kv_cache_suite {

namespace {

// Sequences of `length` tokens. window: visible keys per token, including the token itself; 0 means all keys.
struct Case {
  AttentionShape shape;
  Index length, window, spare;
  double cap;

  bool holds_all() const { return window == 0; }
  Index held() const { return holds_all() ? length + spare : window - 1; }
  Index k_width() const { return shape.num_kv_heads * shape.head_dim; }
  Index width() const { return k_width() + shape.num_kv_heads * shape.v_head_dim; }
  ScoreRule scores() const { return {0.6, cap}; }
  AttentionShape of(Index batch, Index queries, Index keys) const {
    AttentionShape s = shape;
    s.batch = batch, s.queries = queries, s.keys = keys;
    return s;
  }
};

Case drawn(std::mt19937_64& random) {
  const auto up_to = [&](Index least, Index most) { return least + Index(random() % std::uint64_t(most - least + 1)); };
  Case c{};
  const Index kv_heads = up_to(1, 2), head_dim = up_to(0, 1) ? 8 * up_to(1, 2) : up_to(1, 7);
  c.shape = {up_to(1, 4), 1, 0, kv_heads * up_to(1, 3), kv_heads, head_dim, up_to(0, 1) ? head_dim : up_to(1, 9)};
  c.length = up_to(1, 14), c.window = up_to(0, 2) ? up_to(1, 6) : 0, c.spare = up_to(0, 70), c.cap = up_to(0, 3) ? 0 : 2;
  return c;
}

template <class T>
class Texts {
 public:
  Texts(Workbench& bench, const Case& c)
      : bench_(bench), c_(c), q_(bench.normal<T>(rows(), c.shape.num_heads * c.shape.head_dim)), kv_(bench.normal<T>(rows(), c.width())) {}

  Tensor2<T> at_once() {
    const Tensor2<T> out = output(rows());
    const auto state = this->state(rows());
    const AttentionShape s = c_.of(c_.shape.batch, c_.length, c_.length);
    attention<T>(bench_.dev, s, {.window = c_.window}, c_.scores(), q_, columns(kv_, 0, c_.k_width()),
                 columns(kv_, c_.k_width(), c_.width() - c_.k_width()), Carry::fresh, state);
    attention_finish<T>(bench_.dev, s, state, out, state.m);
    return out;
  }
  // In each step, a random range of adjacent sequences advances by one token. Cache rows that have not been written
  // hold random values.
  Tensor2<T> by_tokens(std::mt19937_64& random) {
    const Tensor2<T> out = output(rows()), cache = bench_.normal<T>(c_.shape.batch * c_.held(), c_.width());
    std::vector<Index> done(std::size_t(c_.shape.batch), 0);
    for (Index left = rows(); left > 0;) {
      const Index first = Index(random() % std::uint64_t(c_.shape.batch));
      Index n = 0;
      const Index most = 1 + Index(random() % std::uint64_t(c_.shape.batch - first));
      while (n < most && done[std::size_t(first + n)] < c_.length) ++n;
      if (n == 0) continue;
      step(first, std::span(done).subspan(std::size_t(first), std::size_t(n)), cache, out);
      for (Index b = first; b < first + n; ++b) ++done[std::size_t(b)];
      left -= n;
    }
    return out;
  }

 private:
  Index rows() const { return c_.shape.batch * c_.length; }
  Tensor2<T> output(Index rows) { return bench_.zeros<T>(rows, c_.shape.num_heads * c_.shape.v_head_dim); }
  AttentionState<Acc<T>> state(Index rows) {
    return {bench_.zeros<Acc<T>>(rows, c_.shape.num_heads * c_.shape.v_head_dim), bench_.zeros<Acc<T>>(rows, c_.shape.num_heads),
            bench_.zeros<Acc<T>>(rows, c_.shape.num_heads)};
  }
  // Row of q and kv that sequence first + i reads next.
  Index row(Index first, Index i, std::span<const Index> before) const { return (first + i) * c_.length + before[std::size_t(i)]; }

  void step(Index first, std::span<const Index> before, const Tensor2<T>& cache, const Tensor2<T>& out) {
    const Index n = Index(before.size());
    const Tensor2<T> q = bench_.zeros<T>(n, Index(q_.extent(1))), fresh = bench_.zeros<T>(n, c_.width()), result = output(n);
    const auto there = bench_.arena.tensor<std::int32_t>(n);
    for (Index i = 0; i < n; ++i) {
      std::copy_n(&q_(row(first, i, before), 0), q.extent(1), &q(i, 0));
      std::copy_n(&kv_(row(first, i, before), 0), fresh.extent(1), &fresh(i, 0));
      there(i) = std::int32_t(before[std::size_t(i)]);
    }
    const KeyCache<T> mine{Matrix<T>(cache).block(first * c_.held(), n * c_.held(), 0, c_.width()), c_.held(), c_.k_width(), c_.holds_all()};
    const auto state = this->state(n);
    const AttentionShape s = c_.of(n, 1, 0);
    attention_step<T>(bench_.dev, s, c_.scores(), Matrix<T>(q), Matrix<T>(fresh), mine, {there, before}, state);
    attention_finish<T>(bench_.dev, s, state, result, state.m);
    for (Index i = 0; i < n; ++i) std::copy_n(&result(i, 0), out.extent(1), &out(row(first, i, before), 0));
  }

  Workbench& bench_;
  const Case& c_;
  Tensor2<T> q_, kv_;
};

template <class T>
void expect_decoding_matches_attention(double within) {
  std::mt19937_64 random(seed_of_run());
  for (int i = 0; i < 25; ++i) {
    const Case c = drawn(random);
    SCOPED_TRACE(fmt::format("case {}: {} sequences of {} tokens, {} query heads on {} KV heads of {} and {} dimensions, window {}, {} cache rows", i,
                             c.shape.batch, c.length, c.shape.num_heads, c.shape.num_kv_heads, c.shape.head_dim, c.shape.v_head_dim, c.window,
                             c.held()));
    Workbench bench;
    Texts<T> texts(bench, c);
    const Tensor2<T> full = texts.at_once(), one = texts.by_tokens(random), other = texts.by_tokens(random);
    for (Index n = 0; n < Index(full.span()); ++n) EXPECT_NEAR(double(flat(one)(n)), double(flat(full)(n)), within) << n;
    EXPECT_EQ(std::memcmp(one.data(), other.data(), one.span() * sizeof(T)), 0) << "the bits depend on which sequences advance together";
  }
}

}  // namespace

TEST(kv_cache, decoding_with_kv_cache_matches_full_attention) {
  expect_decoding_matches_attention<double>(1e-12);
  expect_decoding_matches_attention<float>(1e-5);
  expect_decoding_matches_attention<bf16>(0.05);
}

TEST(kv_cache, sequence_longer_than_its_kv_cache_is_refused) {
  Workbench bench;
  const auto x = bench.zeros<float>(1, 4), cache = bench.zeros<float>(3, 8);
  const auto fresh = bench.zeros<float>(1, 8), m = bench.zeros<float>(1, 1), l = bench.zeros<float>(1, 1);
  const auto there = bench.arena.tensor<std::int32_t>(1);
  const std::vector<Index> before{3};
  there(0) = 3;
  EXPECT_THROW(attention_step<float>(bench.dev, {1, 1, 0, 1, 1, 4, 4}, ScoreRule(1), Matrix<float>(x), Matrix<float>(fresh),
                                     {Matrix<float>(cache), 3, 4, true}, {there, before}, {x, m, l}),
               Error);
}

}  // namespace gyr::testing::kv_cache_suite
