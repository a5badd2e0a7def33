// SPDX-License-Identifier: BSD-3-Clause
// Random attention cases for tests of emulated kernels, and the tensors of a case.
#pragma once

#include <random>

#include "kernels/cuda/attention/attention.hpp"
#include "regression/support/documents.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::cuda::attention_cases {

using gyr::testing::values_of;
using gyr::testing::Workbench;

struct Case {
  AttentionShape shape;
  Index first_block_keys = 0;  // keys in the first of two key blocks (batch 1 only); 0: a single block
  bool causal = true;
  Index first_query = shape.keys - shape.queries;
  std::vector<std::int32_t> positions = {};  // packed documents: position of each query in its document
  std::vector<std::int32_t> ahead = {};      // packed documents without causal mask: number of later tokens in the document
  Index window = 0;
  double cap = 0;

  enum class Reach { all, documents, window };
  static Case drawn(std::mt19937_64& random, Reach reach, Index most = 150) {
    const auto among = [&](Index least, Index most) { return least + Index(random() % std::uint64_t(most - least + 1)); };
    const Index kv_heads = among(1, 2);
    Case c{{among(1, 2), among(1, most), among(1, most), kv_heads * among(1, 3), kv_heads, 8 * among(1, 16), 8 * among(1, 16)}};
    c.first_block_keys = c.shape.batch == 1 && among(0, 1) ? among(0, c.shape.keys - 1) : 0;
    c.causal = among(0, 1);
    c.first_query = among(-20, c.shape.keys);
    if (reach == Reach::window) c.window = among(1, 2 * most / 3);
    if (among(0, 2) == 0) c.cap = 0.1 * double(among(2, 20));
    const bool packed = reach == Reach::documents || (reach == Reach::window && among(0, 1));
    for (Index r = 0; packed && r < c.shape.batch * c.shape.queries; ++r) {
      Index position = r % c.shape.queries == 0 ? 30 * among(0, 1) : c.positions.back() + 1;  // a sequence may start inside a document
      if (among(0, 40) == 0) position = 0;
      c.positions.push_back(std::int32_t(position));
    }
    if (!c.causal && packed) {
      c.ahead = gyr::testing::ahead_of(c.positions, c.shape.queries);
      if (among(0, 1))  // the last documents continue after the sequence
        for (const gyr::testing::Extent& e : gyr::testing::extents_of(c.positions, c.shape.queries))
          for (Index t = e.first; t < e.first + e.count && e.first + e.count == c.shape.queries; ++t) c.ahead[e.sequence * c.shape.queries + t] += 20;
    }
    return c;
  }
  std::string name() const {
    return fmt::format("batch {}, {} queries from {}, {} keys, cut {}, heads {} of {} and {}, on {}, {}causal, {}, window {}, cap {}", shape.batch,
                       shape.queries, first_query, shape.keys, first_block_keys, shape.num_heads, shape.head_dim, shape.v_head_dim,
                       shape.num_kv_heads, causal ? "" : "not ", positions.empty() ? "no documents" : "documents", window, cap);
  }
  // Mask for the keys from `first` on.
  Mask mask(Index first) const { return {causal, first_query, first, gyr::testing::documents_of(positions, ahead), window}; }
};

template <class T>
struct Heads {
  using A = Acc<T>;
  const Case& c;
  AttentionShape shape;
  Tensor2<T> q, k, v, dout, out;
  AttentionState<A> state;
  Tensor2<A> lse, delta, dq, dk, dv;

  Heads(Workbench& bench, const Case& c) : c(c), shape(c.shape) {
    const Index queries = shape.batch * shape.queries, keys = shape.batch * shape.keys, H = shape.num_heads, K = shape.num_kv_heads;
    q = bench.normal<T>(queries, H * shape.head_dim), dout = bench.normal<T>(queries, H * shape.v_head_dim);
    k = bench.normal<T>(keys, K * shape.head_dim), v = bench.normal<T>(keys, K * shape.v_head_dim);
    out = bench.zeros<T>(queries, H * shape.v_head_dim);
    state = {bench.zeros<A>(queries, H * shape.v_head_dim), bench.zeros<A>(queries, H), bench.zeros<A>(queries, H)};
    lse = bench.zeros<A>(queries, H), delta = bench.zeros<A>(queries, H);
    dq = bench.normal<A>(queries, H * shape.head_dim);  // gradients are accumulated onto these values
    dk = bench.normal<A>(keys, K * shape.head_dim), dv = bench.normal<A>(keys, K * shape.v_head_dim);
  }

  // Calls f(shape, first key, selector of the block's rows) for each block of keys.
  template <class F>
  void each_block(const F& f) const {
    const auto block = [&](Index first, Index count) {
      AttentionShape part = shape;
      part.keys = count;
      f(part, first, [=, B = shape.batch](const auto& x) { return rows(x, first * B, count * B); });
    };
    if (c.first_block_keys > 0) block(0, c.first_block_keys);
    block(c.first_block_keys, shape.keys - c.first_block_keys);
  }
  ScoreRule scale() const { return {1 / std::sqrt(double(shape.head_dim)), c.cap}; }
  void attend(Device& dev) const {
    each_block([&](const AttentionShape& part, Index first, const auto& of) {
      attention<T>(dev, part, c.mask(first), scale(), q, of(k), of(v), first == 0 ? Carry::fresh : Carry::continued, state);
    });
    attention_finish<T>(dev, shape, state, out, lse);
  }
  // parts: number of parts that the query heads of a key head are split into; 0: as attention_backward chooses
  void attend_backward(Device& dev, Index parts = 0) const {
    attention_delta<T>(dev, shape, dout, out, delta);
    each_block([&](const AttentionShape& part, Index first, const auto& of) {
      if constexpr (std::is_same_v<T, bf16>)
        if (parts > 0) {
          const Scope scope(dev.scratch);
          const backend::Heads heads(part, c.mask(first));
          const backend::KeyGradientParts key_parts(dev.scratch, heads, parts);
          EXPECT_TRUE(
              backend::attention_gradients_by_tensor_cores(dev, heads, scale(), q, of(k), of(v), dout, lse, delta, key_parts, dq, of(dk), of(dv)));
          return;
        }
      attention_backward<T>(dev, part, c.mask(first), scale(), q, of(k), of(v), dout, lse, delta, dq, of(dk), of(dv));
    });
  }
  std::vector<std::pair<const char*, std::vector<double>>> gradients() const {
    return {{"dq", values_of(dq)}, {"dk", values_of(dk)}, {"dv", values_of(dv)}};
  }
};

}  // namespace gyr::cuda::attention_cases
