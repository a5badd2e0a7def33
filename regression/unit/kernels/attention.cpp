// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/attention.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <random>

#include "regression/support/documents.hpp"
#include "regression/support/values.hpp"

namespace gyr::testing::attention_suite {

namespace {

constexpr double scale = 0.6;
constexpr DrawnAt drawn_at{3, 5};  // step and first sample of the dropout mask

struct Case {
  AttentionShape shape;
  Mask mask;
  std::vector<std::int32_t> positions = {};  // position of each row in its packed document
  std::vector<std::int32_t> ahead = {};      // tokens of the document after each row, for masks that are not causal
  double cap = 0;
  double dropped = 0;  // dropout probability of attention weights
  bool sinks = false, biased = false;

  ScoreRule scores(const DrawnAt* now) const {
    ScoreRule rule(scale, cap);
    rule.dropout = dropout_at(7, "here", dropped, now);
    rule.dropout.first_head = 2;
    return rule;
  }
  // Factor that dropout applies to the weight of query i and key j of a head: 0, or 1 / (1 - p).
  double kept(const Dropout& d, Index b, Index h, Index i, Index j) const {
    if (dropped == 0) return 1;
    const Index key = mask.first_key + j;
    const PhiloxWords words = d.words(d.of(d.at(drawn_at), mask.first_sequence + b), h, mask.first_query + i, key / 4);
    return words.at[key % 4] < d.limit ? 0 : d.kept;
  }
  // Columns of the distance bias. zero() is the column of distance 0. Some columns on both sides are unused.
  Index zero() const { return mask.first_query + shape.queries + 1 - mask.first_key; }
  Index distances() const { return shape.queries + shape.keys + 3; }
  Index bias_size() const { return biased ? shape.num_heads * distances() : 0; }
  Mask full_mask() const {
    Mask full = mask;
    full.documents = documents_of(positions, ahead);
    return full;
  }
  Index q_size() const { return shape.batch * shape.queries * shape.num_heads * shape.head_dim; }
  Index k_size() const { return shape.batch * shape.keys * shape.num_kv_heads * shape.head_dim; }
  Index v_size() const { return shape.batch * shape.keys * shape.num_kv_heads * shape.v_head_dim; }
  Index out_size() const { return shape.batch * shape.queries * shape.num_heads * shape.v_head_dim; }
};

struct Arguments {
  Values q, k, v, sinks, bias;
  explicit Arguments(const Case& s)
      : q(random_values(s.q_size(), 1)), k(random_values(s.k_size(), 2)), v(random_values(s.v_size(), 3)),
        sinks(random_values(s.sinks ? s.shape.num_heads : 0, 4)), bias(random_values(s.bias_size(), 4)) {}
};

struct Result {
  Values out, lse;
};
struct Gradients {
  Values q, k, v, sinks = {}, bias = {};
};

// Reference: softmax over the visible keys, one query and head at a time.
Result oracle(const Case& s, const Arguments& a) {
  const auto [B, Tq, Tk, H, K, E, V] = s.shape;
  const Dropout dropout = s.scores(nullptr).dropout;
  Result y{Values(s.out_size(), 0), Values(B * Tq * H, -std::numeric_limits<double>::infinity())};
  for (Index b = 0; b < B; ++b)
    for (Index i = 0; i < Tq; ++i)
      for (Index h = 0; h < H; ++h) {
        const double* q = &a.q[((b * Tq + i) * H + h) * E];
        const auto at = [keys = Tk, kv_heads = K, b, group = h / (H / K)](Index j) { return (b * keys + j) * kv_heads + group; };
        Values weight(Tk, 0);
        double sum = 0;
        for (Index j = 0; j < Tk; ++j) {
          if (s.mask.causal && s.mask.first_key + j > s.mask.first_query + i) continue;
          const Index back = s.mask.first_query + i - s.mask.first_key - j;
          if (s.mask.window > 0 && (s.mask.causal ? back : std::abs(back)) >= s.mask.window) continue;
          if (!s.positions.empty() && s.mask.first_key + j < s.mask.first_query + i - s.positions[b * Tq + i]) continue;
          if (!s.ahead.empty() && s.mask.first_key + j > s.mask.first_query + i + s.ahead[b * Tq + i]) continue;
          double score = 0;
          for (Index e = 0; e < E; ++e) score += scale * q[e] * a.k[at(j) * E + e];
          if (s.cap > 0) score = s.cap * std::tanh(score / s.cap);
          if (s.biased) score += a.bias[h * s.distances() + s.zero() + s.mask.first_key + j - s.mask.first_query - i];
          sum += weight[j] = std::exp(score);
        }
        if (s.sinks) sum += std::exp(a.sinks[h]);
        if (sum == 0) continue;
        y.lse[(b * Tq + i) * H + h] = std::log(sum);
        for (Index j = 0; j < Tk; ++j) {
          if (weight[j] == 0) continue;
          const double w = s.kept(dropout, b, h, i, j) * weight[j] / sum;
          for (Index e = 0; e < V; ++e) y.out[((b * Tq + i) * H + h) * V + e] += w * a.v[at(j) * V + e];
        }
      }
  return y;
}

// Tensors of one attention call in precision T. Rows of q, k and v have gaps between them.
template <class T>
struct Call {
  using A = Acc<T>;
  Case s;
  Index rows, key_rows, columns, key_columns, value_columns, out_columns;
  Block<T> q, k, v;
  Block<A> o, m, l, lse, delta, bias, dbias;
  Block<T> out;
  Block<A> sinks;
  Arena arena{Memory::activations, 64};
  Tensor1<DrawnAt> now = arena.tensor<DrawnAt>(1);

  Call(const Case& s, const Arguments& a)
      : s(s), rows(s.shape.batch * s.shape.queries), key_rows(s.shape.batch * s.shape.keys), columns(s.shape.num_heads * s.shape.head_dim),
        key_columns(s.shape.num_kv_heads * s.shape.head_dim), value_columns(s.shape.num_kv_heads * s.shape.v_head_dim),
        out_columns(s.shape.num_heads * s.shape.v_head_dim), q(rows, columns, a.q, 3), k(key_rows, key_columns, a.k, 1),
        v(key_rows, value_columns, a.v, 2), o(rows, out_columns), m(rows, s.shape.num_heads), l(rows, s.shape.num_heads),
        lse(rows, s.shape.num_heads), delta(rows, s.shape.num_heads), bias(s.biased ? s.shape.num_heads : 0, s.distances(), a.bias),
        dbias(s.biased ? s.shape.num_heads : 0, s.distances(), Values(s.bias_size(), 1)), out(rows, out_columns),
        sinks(1, Index(a.sinks.size()), a.sinks) {
    now(0) = drawn_at;
  }

  AttentionState<A> state() { return {o.tensor(), m.tensor(), l.tensor()}; }
  ScoreRule scores() {
    ScoreRule rule = s.scores(now.data());
    if (s.biased) rule.bias = {AnyTensor2(bias.tensor()), AnyTensor2(dbias.tensor()), s.zero()};
    return rule;
  }
  void block(Device& dev, Carry carry) { attention<T>(dev, s.shape, s.full_mask(), scores(), q.matrix(), k.matrix(), v.matrix(), carry, state()); }
  void finish(Device& dev) { attention_finish<T>(dev, s.shape, state(), out.tensor(), lse.tensor(), sinks.vector()); }

  Gradients backward(Device& dev, const Values& dout) {
    Block<T> dy(rows, out_columns, dout);
    Block<A> dq(rows, columns, Values(rows * columns, 1), 2);
    Block<A> dk(key_rows, key_columns, Values(key_rows * key_columns, 1), 3), dv(key_rows, value_columns, Values(key_rows * value_columns, 1), 1);
    attention_delta<T>(dev, s.shape, dy.tensor(), out.tensor(), delta.tensor());
    attention_backward<T>(dev, s.shape, s.full_mask(), scores(), q.matrix(), k.matrix(), v.matrix(), dy.tensor(), lse.tensor(), delta.tensor(),
                          dq.matrix(), dk.matrix(), dv.matrix());
    Gradients g{dq.values(), dk.values(), dv.values(), {}, dbias.values()};
    if (s.sinks) {
      Block<A> terms(rows, s.shape.num_heads);
      attention_sink_terms<A>(dev, sinks.vector(), lse.tensor(), delta.tensor(), terms.tensor());
      g.sinks.assign(s.shape.num_heads, 0);
      const Values all = terms.values();
      for (std::size_t i = 0; i < all.size(); ++i) g.sinks[i % s.shape.num_heads] += all[i];
    }
    for (Values* x : {&g.q, &g.k, &g.v, &g.bias})
      for (double& e : *x) e -= 1;  // the kernels added the gradients to ones
    return g;
  }
};

template <class T>
Result forward(const Case& s, const Arguments& a) {
  Device dev(false, 1 << 24);
  Call<T> run(s, a);
  run.block(dev, Carry::fresh);
  run.finish(dev);
  return {run.out.values(), run.lse.values()};
}

template <class T>
Gradients backward(const Case& s, const Arguments& a, const Values& dout) {
  Device dev(false, 1 << 24);
  Call<T> run(s, a);
  run.block(dev, Carry::fresh);
  run.finish(dev);
  return run.backward(dev, dout);
}

// Shape: batch, queries, keys, num_heads, num_kv_heads, head_dim, v_head_dim. Mask: causal, first_query, first_key.
std::vector<Case> cases() {
  return {{{2, 7, 7, 4, 2, 4, 2}, {true, 0, 0}}, {{1, 5, 5, 3, 1, 6, 3}, {true, 0, 0}}, {{1, 6, 6, 2, 2, 4, 4}, {false, 0, 0}},
          {{2, 1, 9, 4, 2, 4, 2}, {true, 8, 0}}, {{1, 3, 8, 2, 1, 4, 1}, {true, 5, 0}},  // decoding one token, and a prompt continued with a KV cache
          {{1, 6, 4, 2, 1, 4, 4}, {true, 3, 5}}, {{1, 3, 4, 2, 1, 4, 4}, {true, 0, 9}},  // some rows, then all rows, without a visible key
          {{1, 4, 9, 2, 2, 4, 4}, {false, 0, 0}}};
}
// The same documents with a bidirectional mask: every token sees its full document.
std::vector<Case> with_both_ways(std::vector<Case> list) {
  for (Case& c : list) c.mask.causal = false, c.ahead = ahead_of(c.positions, c.shape.queries);
  return list;
}
std::vector<Case> packed_cases() {
  std::vector<Case> list;
  for (const Lengths& lengths : document_splits(19)) list.push_back({{2, 19, 19, 4, 2, 4, 4}, {true, 0, 0}, positions_of(lengths, 2, 19)});
  std::vector<std::int32_t> running = positions_of({4, 3, 5}, 1, 12);
  for (int t = 0; t < 4; ++t) running[t] += 6;  // the first document began six tokens before the first query
  list.push_back({{1, 12, 20, 2, 1, 4, 4}, {true, 8, 0}, running});
  list.push_back({{1, 12, 9, 2, 1, 4, 4}, {true, 8, 4}, running});  // a block of keys in the middle of the sequence
  for (Case& c : with_both_ways(list)) list.push_back(std::move(c));
  Case middle = list.back();  // keys that begin after most queries, and a document that ends after the last query
  middle.mask.first_key = 15;
  for (int t = 8; t < 12; ++t) middle.ahead[t] += 3;
  list.push_back(middle);
  return list;
}
std::vector<Case> large_packed_cases() {
  std::vector<Case> list{{{1, 300, 300, 3, 1, 8, 8}, {true, 0, 0}, positions_of({30, 1, 100, 64, 300}, 1, 300)},
                         {{2, 900, 900, 2, 2, 4, 4}, {true, 0, 0}, positions_of({250, 600, 1, 900}, 2, 900)}};
  for (Case& c : with_both_ways(list)) list.push_back(std::move(c));
  return list;
}
// Random generator with the seed GYR_SEED, 1 by default.
std::mt19937_64 seeded() {
  const char* const given = std::getenv("GYR_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}
// Random sliding-window cases: windows of one token, shorter than a tile, several tiles long, or longer than all keys.
// Masks are causal or bidirectional, with or without packed documents, and queries begin at any position.
std::vector<Case> windowed(int count, Index most_tokens) {
  std::mt19937_64 random = seeded();
  const auto among = [&](Index least, Index most) { return least + Index(random() % std::uint64_t(most - least + 1)); };
  std::vector<Case> list;
  for (int i = 0; i < count; ++i) {
    const Index kv_heads = among(1, 2), queries = among(1, most_tokens), keys = among(1, most_tokens);
    Case c{{among(1, 2), queries, keys, kv_heads * among(1, 3), kv_heads, among(1, 4), among(1, 4)}, {true, among(0, keys), among(0, 3)}};
    const Index windows[] = {1, 2, among(1, 9), among(1, most_tokens), 2 * most_tokens};
    c.mask.window = windows[among(0, 4)], c.mask.causal = among(0, 1);
    if (among(0, 1)) c.positions = positions_of({among(1, 9), among(1, most_tokens), queries}, c.shape.batch, queries);
    if (!c.mask.causal) c.ahead = ahead_of(c.positions, queries);
    list.push_back(c);
  }
  return list;
}

// Random soft caps from 0.05, which flattens almost all differences between scores, to 20, which hardly changes them.
std::vector<Case> capped(std::vector<Case> list) {
  std::mt19937_64 random = seeded();
  for (Case& c : list) c.cap = std::exp(std::uniform_real_distribution<>(-3, 3)(random));
  return list;
}

std::vector<Case> biased(std::vector<Case> list) {
  for (Case& c : list) c.biased = true;
  return list;
}
// Random dropout probabilities. The batch begins at sequence 0 to 3 of the micro-batch.
std::vector<Case> dropped_out(std::vector<Case> list) {
  std::mt19937_64 random = seeded();
  for (Case& c : list) c.dropped = std::uniform_real_distribution<>(0.05, 0.7)(random), c.mask.first_sequence = Index(random() % 4);
  return list;
}
std::vector<Case> with_sinks(std::vector<Case> list) {
  for (Case& c : list) c.sinks = true;
  return list;
}

std::vector<Case> large_cases() {  // several tiles of queries and of keys
  return {{{1, 300, 300, 3, 1, 8, 8}, {true, 0, 0}}, {{1, 290, 600, 2, 2, 4, 6}, {true, 310, 0}}, {{1, 70, 530, 5, 1, 4, 4}, {false, 0, 0}}};
}

}  // namespace

void expect_softmax(const std::vector<Case>& set) {
  for (const Case& s : set) {
    SCOPED_TRACE(fmt::format("{} queries from {}, {} keys from {}, window {}{}, documents {}, cap {}", s.shape.queries, s.mask.first_query,
                             s.shape.keys, s.mask.first_key, s.mask.window, s.mask.causal ? "" : " both ways", !s.positions.empty(), s.cap));
    const Arguments a(s);
    const Result y = oracle(s, a), x = forward<double>(s, a);
    expect_near(x.out, y.out, 1e-13, "out");
    expect_near(x.lse, y.lse, 1e-13, "lse");
  }
}

TEST(attention, equals_softmax_of_all_scores) {
  for (const auto& set : {cases(), large_cases(), packed_cases(), large_packed_cases()}) expect_softmax(set);
}
TEST(attention, capped_scores_match_reference_softmax) {
  for (const auto& set : {cases(), packed_cases(), windowed(30, 20)}) expect_softmax(capped(set));
}
TEST(attention, biased_scores_match_reference_softmax) {
  for (const auto& set : {cases(), packed_cases(), windowed(30, 20)}) expect_softmax(biased(set));
}
TEST(attention, distance_biases_match_reference_across_tiles) {
  for (const auto& set : {large_cases(), large_packed_cases()}) expect_softmax(biased(set));
}
TEST(attention, dropout_of_weights_matches_reference_softmax) {
  for (const auto& set : {cases(), packed_cases(), windowed(30, 20)}) expect_softmax(dropped_out(set));
}
TEST(attention, sinks_are_keys_without_a_value) {
  for (const auto& set : {cases(), packed_cases(), windowed(30, 20)}) expect_softmax(with_sinks(set));
  expect_softmax(dropped_out(with_sinks(cases())));
}
TEST(attention, dropout_and_sinks_match_reference_across_tiles) {
  expect_softmax(dropped_out(large_cases()));
  expect_softmax(with_sinks(large_cases()));
}
TEST(attention, soft_caps_match_reference_across_tiles) { expect_softmax(capped(large_cases())); }
TEST(attention, through_a_window_equals_softmax_over_visible_keys) { expect_softmax(windowed(60, 20)); }
TEST(attention, sliding_windows_match_reference_across_tiles) { expect_softmax(windowed(6, 700)); }

// Changing a key outside a query's window changes no bit of its output, and the query sends that key no gradient. A
// visible key affects both.
void expect_window_hides(bool causal) {
  Case s{{1, 300, 300, 2, 1, 8, 8}, {causal, 0, 0}};
  for (const Index window : {1, 60, 140}) {
    s.mask.window = window;
    const Arguments a(s);
    const Values dout = random_values(s.out_size(), 9);
    const Result y = forward<float>(s, a);
    const Gradients g = backward<float>(s, a, dout);
    for (const Index t : {0, 127, 255}) {
      Arguments b = a;
      for (Index i = t * 8; i < (t + 1) * 8; ++i) b.k[i] = 90 * b.k[i] + 1, b.v[i] = -70 * b.v[i];
      const Result z = forward<float>(s, b);
      Values asked = dout;
      for (Index r = 0; r < 300; ++r) {
        const bool same = std::equal(&y.out[r * 16], &y.out[r * 16] + 16, &z.out[r * 16]);
        EXPECT_EQ(same, r < (causal ? t : t + 1 - window) || r >= t + window) << "key " << t << ", query " << r << ", window " << window;
        if (!same)
          for (Index i = r * 16; i < (r + 1) * 16; ++i) asked[i] = 0;
      }
      const Gradients h = backward<float>(s, a, asked);  // dO is zero for all queries that see key t
      for (const auto part : {&Gradients::k, &Gradients::v})
        for (Index i = t * 8; i < (t + 1) * 8; ++i) {
          EXPECT_EQ((h.*part)[i], 0);
          if (window == 1 && part == &Gradients::k) continue;  // a single visible key always has weight 1
          EXPECT_NE((g.*part)[i], 0);
        }
    }
  }
}

TEST(attention, keys_outside_window_do_not_affect_query) {
  for (const bool causal : {true, false}) expect_window_hides(causal);
}

TEST(attention, window_covering_all_keys_changes_no_bit) {
  for (Case s : large_cases()) {
    const Arguments a(s);
    const Values dout = random_values(s.out_size(), 9);
    const Result y = forward<float>(s, a);
    const Gradients g = backward<float>(s, a, dout);
    s.mask.window = s.mask.first_query + s.shape.queries + s.shape.keys;
    const Result z = forward<float>(s, a);
    const Gradients h = backward<float>(s, a, dout);
    EXPECT_EQ(y.out, z.out);
    EXPECT_EQ(y.lse, z.lse);
    for (const auto part : {&Gradients::q, &Gradients::k, &Gradients::v}) EXPECT_EQ(g.*part, h.*part);
  }
}

void expect_slopes(const std::vector<Case>& set) {
  for (const Case& s : set) {
    const Arguments a(s);
    const Values dout = random_values(s.out_size(), 9);
    const Gradients g = backward<double>(s, a, dout);
    const auto along = [&](Values Arguments::*input, const Values& gradient, const char* what) {
      const Values direction = random_values(gradient.size(), 78);
      const auto f = [&](double h) {
        Arguments moved = a;
        for (std::size_t i = 0; i < direction.size(); ++i) (moved.*input)[i] += h * direction[i];
        return dot(oracle(s, moved).out, dout);
      };
      EXPECT_NEAR(dot(gradient, direction), (f(1e-5) - f(-1e-5)) / 2e-5, 1e-7) << what;
    };
    along(&Arguments::q, g.q, "q");
    along(&Arguments::k, g.k, "k");
    along(&Arguments::v, g.v, "v");
    if (s.biased) along(&Arguments::bias, g.bias, "bias");
  }
}

// Up to `most` distinct random indices from [0, n), in rising order.
std::vector<std::size_t> drawn(std::size_t n, std::size_t most, std::mt19937_64& random) {
  std::vector<std::size_t> all(n), some;
  std::iota(all.begin(), all.end(), std::size_t(0));
  std::sample(all.begin(), all.end(), std::back_inserter(some), most, random);
  return some;
}

// Checks gradients along one random direction of all elements, and for up to 60 single elements of each input.
void expect_central_differences(const std::vector<Case>& set) {
  expect_slopes(set);
  std::mt19937_64 random = seeded();
  for (const Case& s : set) {
    const Arguments a(s);
    const Values dout = random_values(s.out_size(), 9);
    const Gradients g = backward<double>(s, a, dout);
    const auto check = [&](Values Arguments::*input, const Values& gradient, const char* what) {
      const std::vector<std::size_t> some = drawn(gradient.size(), 60, random);
      Values x, of_some;
      for (const std::size_t i : some) x.push_back((a.*input)[i]), of_some.push_back(gradient[i]);
      Arguments moved = a;
      const auto f = [&](const Values& there) {
        for (std::size_t i = 0; i < some.size(); ++i) (moved.*input)[some[i]] = there[i];
        return dot(oracle(s, moved).out, dout);
      };
      expect_gradient(f, x, of_some, what);
    };
    check(&Arguments::q, g.q, "q");
    check(&Arguments::k, g.k, "k");
    check(&Arguments::v, g.v, "v");
    check(&Arguments::sinks, g.sinks, "sinks");
    if (s.biased) check(&Arguments::bias, g.bias, "bias");
  }
}

TEST(attention, gradient_is_the_central_difference) { expect_central_differences(cases()); }
TEST(attention, gradient_of_packed_documents_is_the_central_difference) { expect_central_differences(packed_cases()); }
TEST(attention, gradient_through_a_window_is_the_central_difference) { expect_central_differences(windowed(12, 12)); }
TEST(attention, gradient_is_the_central_difference_of_capped_scores) {
  for (const auto& set : {cases(), packed_cases(), windowed(8, 12)}) expect_central_differences(capped(set));
}

TEST(attention, gradient_is_the_central_difference_of_biased_scores) {
  for (const auto& set : {cases(), packed_cases(), windowed(8, 12)}) expect_central_differences(biased(set));
}
TEST(attention, gradient_is_the_central_difference_under_fixed_dropout) {
  for (const auto& set : {cases(), packed_cases(), windowed(8, 12)}) expect_central_differences(dropped_out(set));
}
TEST(attention, gradient_with_sinks_is_the_central_difference) {
  for (const auto& set : {cases(), packed_cases(), windowed(8, 12)}) expect_central_differences(with_sinks(set));
  expect_central_differences(dropped_out(with_sinks(cases())));
}

TEST(attention, gradient_matches_derivative_across_tiles) { expect_slopes(large_cases()); }
TEST(attention, packed_document_gradient_matches_derivative_across_tiles) { expect_slopes(large_packed_cases()); }
TEST(attention, window_gradient_matches_derivative_across_tiles) { expect_slopes(windowed(5, 600)); }
TEST(attention, bias_gradient_matches_derivative_across_tiles) {
  for (const auto& set : {large_cases(), large_packed_cases()}) expect_slopes(biased(set));
}
TEST(attention, dropout_gradient_matches_derivative_across_tiles) { expect_slopes(dropped_out(large_cases())); }
TEST(attention, soft_cap_gradient_matches_derivative_across_tiles) { expect_slopes(capped(large_cases())); }

// Packed documents give the same result as each document in a call of its own.
TEST(attention, packed_documents_equal_separate_runs) {
  for (const auto& set : {packed_cases(), large_packed_cases()})
    for (const Case& s : set) {
      const Index T = s.shape.queries, wq = s.shape.num_heads * s.shape.head_dim, wk = s.shape.num_kv_heads * s.shape.head_dim, H = s.shape.num_heads;
      if (s.shape.keys != T) continue;
      const Arguments a(s);
      const Values dout = random_values(s.out_size(), 9);
      const Result packed = forward<double>(s, a);
      const Gradients g = backward<double>(s, a, dout);
      Result separate = packed;
      Gradients h = g;
      for (const Extent& e : extents_of(s.positions, T)) {
        Case one{s.shape, s.mask};  // one document without packing
        one.shape.batch = 1, one.shape.queries = one.shape.keys = e.count;
        Arguments b = a;
        b.q = extract(a.q, e, T, wq), b.k = extract(a.k, e, T, wk), b.v = extract(a.v, e, T, wk);
        const Result y = forward<double>(one, b);
        const Gradients d = backward<double>(one, b, extract(dout, e, T, wq));
        put_back(y.out, e, T, wq, separate.out), put_back(y.lse, e, T, H, separate.lse);
        put_back(d.q, e, T, wq, h.q), put_back(d.k, e, T, wk, h.k), put_back(d.v, e, T, wk, h.v);
      }
      expect_near(packed.out, separate.out, 1e-13, "out");
      expect_near(packed.lse, separate.lse, 1e-13, "lse");
      for (const auto part : {&Gradients::q, &Gradients::k, &Gradients::v}) expect_near(g.*part, h.*part, 1e-13);
    }
}

TEST(attention, one_document_per_sequence_changes_no_bit) {
  std::vector<Case> list = large_cases();
  list.push_back({{1, 300, 300, 3, 1, 8, 8}, {false, 0, 0}});
  for (Case s : list) {
    if (s.shape.queries != s.shape.keys) continue;
    const Arguments a(s);
    const Values dout = random_values(s.out_size(), 9);
    const Result y = forward<float>(s, a);
    const Gradients g = backward<float>(s, a, dout);
    s.positions = positions_of({s.shape.queries}, s.shape.batch, s.shape.queries);
    if (!s.mask.causal) s.ahead = ahead_of(s.positions, s.shape.queries);
    const Result z = forward<float>(s, a);
    const Gradients h = backward<float>(s, a, dout);
    EXPECT_EQ(y.out, z.out);
    EXPECT_EQ(y.lse, z.lse);
    for (const auto part : {&Gradients::q, &Gradients::k, &Gradients::v}) EXPECT_EQ(g.*part, h.*part);
  }
}

// Changing the inputs and the output gradient of one document changes no bit of another one, forward and backward.
void expect_documents_separate(const Case& s) {
  const Index T = s.shape.queries, w = s.shape.num_heads * s.shape.head_dim;
  const Arguments a(s);
  const Values dout = random_values(s.out_size(), 9);
  const Result y = forward<float>(s, a);
  const Gradients g = backward<float>(s, a, dout);
  const auto extents = extents_of(s.positions, T);
  for (const Extent& changed : extents) {
    Arguments b = a;
    Values asked = dout;
    for (Values* x : {&b.q, &b.k, &b.v, &asked}) {
      Values part = extract(*x, changed, T, w);
      for (double& v : part) v = 9 * v + 1;
      put_back(part, changed, T, w, *x);
    }
    const Result z = forward<float>(s, b);
    const Gradients h = backward<float>(s, b, asked);
    for (const Extent& e : extents) {
      const bool same = e.sequence != changed.sequence || e.first != changed.first;
      const auto equal = [&](const Values& p, const Values& q) { return extract(p, e, T, w) == extract(q, e, T, w); };
      EXPECT_EQ(equal(y.out, z.out), same) << "output of the document at token " << e.first << " after the document at token " << changed.first
                                           << " changed";
      if (!same) continue;
      for (const auto part : {&Gradients::q, &Gradients::k, &Gradients::v}) EXPECT_TRUE(equal(g.*part, h.*part)) << e.first;
    }
  }
}

TEST(attention, documents_do_not_affect_each_other) {
  for (const Case& s : large_packed_cases())
    if (s.shape.batch == 2) expect_documents_separate(s);
}

// Keys may be processed in blocks, in any order. The last block (keys 9 to 11) is entirely in the future of queries 0
// to 8.
TEST(attention, blocks_of_keys_combine_in_any_order) {
  const Case full{{1, 12, 12, 4, 2, 4, 4}, {true, 0, 0}};
  const Arguments a(full);
  const Result y = oracle(full, a);
  const Values dout = random_values(full.out_size(), 9);
  const Gradients g = backward<double>(full, a, dout);
  const std::vector<std::pair<Index, Index>> parts{{0, 5}, {5, 4}, {9, 3}};
  for (const std::vector<int>& order : std::vector<std::vector<int>>{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    Device dev(false, 1 << 24);
    std::vector<Call<double>> runs;
    for (const int p : order) {
      const auto [first, count] = parts[p];
      Case s = full;
      s.shape.keys = count, s.mask.first_key = first;
      Arguments part = a;
      part.k.assign(a.k.begin() + first * 8, a.k.begin() + (first + count) * 8);
      part.v.assign(a.v.begin() + first * 8, a.v.begin() + (first + count) * 8);
      runs.emplace_back(s, part);
    }
    Call<double>& head = runs.front();
    for (Call<double>& run : runs) {
      if (&run != &head) run.o = head.o, run.m = head.m, run.l = head.l;
      run.block(dev, &run == &head ? Carry::fresh : Carry::continued);
      head.o = run.o, head.m = run.m, head.l = run.l;
    }
    head.finish(dev);
    expect_near(head.out.values(), y.out, 1e-13);
    expect_near(head.lse.values(), y.lse, 1e-13);

    Gradients sum{Values(g.q.size(), 0), Values(g.k.size(), 0), Values(g.v.size(), 0)};
    for (std::size_t p = 0; p < runs.size(); ++p) {
      runs[p].out = head.out, runs[p].lse = head.lse;
      const Gradients part = runs[p].backward(dev, dout);
      const Index first = parts[order[p]].first * 8;
      for (std::size_t i = 0; i < part.q.size(); ++i) sum.q[i] += part.q[i];
      for (std::size_t i = 0; i < part.k.size(); ++i) sum.k[first + i] += part.k[i], sum.v[first + i] += part.v[i];
    }
    expect_near(sum.q, g.q, 1e-13);
    expect_near(sum.k, g.k, 1e-13);
    expect_near(sum.v, g.v, 1e-13);
  }
}

// Partial states of separate key blocks, each from Carry::fresh, are merged in any order.
TEST(attention, states_of_key_blocks_merge_to_full_state) {
  const Case full{{2, 9, 12, 4, 2, 4, 3}, {true, 3, 0}};
  const Arguments a(full);
  const Result y = oracle(full, a);
  for (const std::vector<int>& order : std::vector<std::vector<int>>{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    Device dev(false, 1 << 24);
    std::vector<Call<double>> runs;
    for (const int p : order) {  // the last four keys are visible to few queries
      Case s = full;
      s.shape.keys = 4, s.mask.first_key = 4 * p;
      Arguments part = a;
      part.k.clear(), part.v.clear();
      for (Index b = 0; b < 2; ++b)
        for (Index row = b * 12 + 4 * p; row < b * 12 + 4 * p + 4; ++row) {
          part.k.insert(part.k.end(), a.k.begin() + row * 8, a.k.begin() + row * 8 + 8);
          part.v.insert(part.v.end(), a.v.begin() + row * 6, a.v.begin() + row * 6 + 6);
        }
      runs.emplace_back(s, part).block(dev, Carry::fresh);
    }
    for (const int other : {1, 2}) attention_merge<double>(dev, full.shape, runs[other].state(), runs[0].state());
    runs[0].finish(dev);
    expect_near(runs[0].out.values(), y.out, 1e-13);
    expect_near(runs[0].lse.values(), y.lse, 1e-13);
  }
}

// attention_merge against plain loops. Some maxima differ by thousands, so that exp of the difference is zero, and some rows
// have no visible key.
template <class A>
void expect_merged() {
  const AttentionShape shape{2, 7, 0, 3, 1, 2, 5};
  const Index rows = shape.batch * shape.queries, H = shape.num_heads, V = shape.v_head_dim;
  const double none = -std::numeric_limits<double>::infinity();
  struct Plain {
    Values o, m, l;
  };
  const auto drawn = [&](std::uint64_t seed, Index empty) {
    Plain s{rounded<A>(random_values(rows * H * V, seed)), rounded<A>(random_values(rows * H, seed + 1)),
            rounded<A>(random_values(rows * H, seed + 2))};
    for (Index i = 0; i < rows * H; ++i) {
      s.m[i] = double(A(s.m[i] * (i % 2 ? 1 : 2000))), s.l[i] = double(A(1.5 + s.l[i]));
      if (i % 4 != empty && i % 4 != 3) continue;
      s.m[i] = none, s.l[i] = 0;
      std::fill_n(s.o.begin() + i * V, V, 0.0);
    }
    return s;
  };
  const Plain x = drawn(1, 1), y = drawn(4, 2);
  Plain z = x;
  for (Index i = 0; i < rows * H; ++i) {
    const double m = std::max(x.m[i], y.m[i]), p = x.l[i] > 0 ? std::exp(x.m[i] - m) : 0, q = y.l[i] > 0 ? std::exp(y.m[i] - m) : 0;
    z.m[i] = m, z.l[i] = p * x.l[i] + q * y.l[i];
    for (Index e = 0; e < V; ++e) z.o[i * V + e] = p * x.o[i * V + e] + q * y.o[i * V + e];
  }
  Device dev(false, 1 << 20);
  Block<A> o(rows, H * V, x.o), m(rows, H, x.m), l(rows, H, x.l), other_o(rows, H * V, y.o), other_m(rows, H, y.m), other_l(rows, H, y.l);
  attention_merge<A>(dev, shape, {other_o.tensor(), other_m.tensor(), other_l.tensor()}, {o.tensor(), m.tensor(), l.tensor()});
  expect_near(o.values(), z.o, tolerance_of<A>() / 10, "o");
  expect_near(l.values(), z.l, tolerance_of<A>() / 10, "l");
  EXPECT_EQ(m.values(), z.m);
}

TEST(attention, merges_like_reference_loops_in_double) { expect_merged<double>(); }
TEST(attention, merges_like_reference_loops_in_float) { expect_merged<float>(); }

TEST(attention, finish_may_run_in_place) {
  const Case s = cases()[0];
  const Arguments a(s);
  Device dev(false, 1 << 24);
  Call<float> run(s, a);
  run.block(dev, Carry::fresh);
  run.finish(dev);
  const Values out = run.out.values(), lse = run.lse.values();
  attention_finish<float>(dev, s.shape, run.state(), run.o.tensor(), run.m.tensor());
  EXPECT_EQ(run.o.values(), out);
  EXPECT_EQ(run.m.values(), lse);
}

TEST(attention, future_tokens_do_not_reach_the_past) {
  const Case s{{1, 700, 700, 2, 1, 8, 8}, {true, 0, 0}};
  Arguments a(s);
  const Result y = forward<float>(s, a);
  for (const Index t : {3, 255, 256, 511, 600}) {
    Arguments b = a;
    for (Index i = t * 8; i < Index(b.k.size()); ++i) b.k[i] = 90 * b.k[i] + 1, b.v[i] = -70 * b.v[i];
    for (Index i = t * 16; i < Index(b.q.size()); ++i) b.q[i] = 50 * b.q[i];
    const Result z = forward<float>(s, b);
    EXPECT_TRUE(std::equal(y.out.begin(), y.out.begin() + t * 16, z.out.begin())) << t;
    EXPECT_TRUE(std::equal(y.lse.begin(), y.lse.begin() + t * 2, z.lse.begin())) << t;
    EXPECT_NE(y.out[t * 16], z.out[t * 16]);
  }
}

// A single query with its KV cache gives the same output as the query within the full sequence.
TEST(attention, decode_equals_prefill) {
  const Case s{{1, 40, 40, 4, 2, 8, 8}, {true, 0, 0}};
  const Arguments a(s);
  const Result all = forward<double>(s, a);
  for (Index t = 0; t < s.shape.queries; ++t) {
    Case one = s;
    one.shape.queries = 1, one.shape.keys = t + 1, one.mask.first_query = t;
    Arguments b = a;
    b.q.assign(a.q.begin() + t * 32, a.q.begin() + (t + 1) * 32);
    b.k.resize((t + 1) * 16), b.v.resize((t + 1) * 16);
    expect_near(forward<double>(one, b).out, Values(all.out.begin() + t * 32, all.out.begin() + (t + 1) * 32), 1e-14);
  }
}

void expect_float_and_bf16_follow(const std::vector<Case>& all) {
  for (const Case& s : all) {
    Arguments a(s);
    for (const auto part : {&Arguments::q, &Arguments::k, &Arguments::v}) a.*part = rounded<bf16>(a.*part);
    const Values dout = rounded<bf16>(random_values(s.out_size(), 9));
    const Result y = forward<double>(s, a), f = forward<float>(s, a), h = forward<bf16>(s, a);
    expect_near(f.out, y.out, 1e-5);
    expect_near(f.lse, y.lse, 1e-5);
    expect_near(h.out, y.out, 1e-2);
    expect_near(h.lse, y.lse, 1e-5);
    const Gradients g = backward<double>(s, a, dout), gf = backward<float>(s, a, dout), gh = backward<bf16>(s, a, dout);
    for (const auto part : {&Gradients::q, &Gradients::k, &Gradients::v}) {
      expect_near(gf.*part, g.*part, 1e-5);
      expect_near(gh.*part, g.*part, 2e-2);
    }
  }
}

TEST(attention, float_and_bf16_follow_double) {  // head dimensions of real models
  std::vector<Case> all{{{1, 70, 130, 4, 2, 64, 64}, {true, 60, 0}},
                        {{2, 80, 80, 2, 1, 128, 64}, {true, 0, 0}, positions_of({30, 1, 40, 80}, 2, 80)},
                        {{1, 70, 130, 4, 2, 64, 64}, {true, 60, 0}, {}, {}, 1.5}};
  for (Case& c : with_sinks(dropped_out(all))) all.push_back(std::move(c));
  expect_float_and_bf16_follow(all);
}
TEST(attention, float_and_bf16_follow_double_across_tiles) {
  for (const auto& set : {large_cases(), {large_packed_cases()[0]}}) expect_float_and_bf16_follow(set);
}

// Sizes of real models, at which every slot of the kernels' pipelines is used for several tiles. Too slow for emulated
// kernels.
TEST(attention, bf16_follows_double_over_many_tiles) {
  Case window{{1, 610, 610, 4, 1, 64, 64}, {true, 0, 0}};
  window.mask.window = 300;
  const std::vector<Case> all = {{{1, 1030, 1030, 4, 2, 64, 64}, {true, 0, 0}},
                                 {{1, 520, 900, 3, 1, 128, 128}, {true, 380, 0}},
                                 {{2, 700, 700, 2, 2, 128, 64}, {true, 0, 0}, positions_of({30, 1, 400, 269}, 2, 700)},
                                 {{1, 300, 800, 2, 1, 96, 96}, {false, 0, 0}},
                                 window};
  for (const Case& s : all) {
    SCOPED_TRACE(fmt::format("{} queries, {} keys, heads of {}", s.shape.queries, s.shape.keys, s.shape.head_dim));
    Arguments a(s);
    for (const auto part : {&Arguments::q, &Arguments::k, &Arguments::v}) a.*part = rounded<bf16>(a.*part);
    const Values dout = rounded<bf16>(random_values(s.out_size(), 9));
    const Result y = forward<double>(s, a), h = forward<bf16>(s, a);
    expect_near(h.out, y.out, 1e-2);
    expect_near(h.lse, y.lse, 1e-5);
    const Gradients g = backward<double>(s, a, dout), gh = backward<bf16>(s, a, dout);
    for (const auto part : {&Gradients::q, &Gradients::k, &Gradients::v}) expect_near(gh.*part, g.*part, 2e-2);
  }
}

// Scores of about +-10^4 overflow exp unless the row maximum is subtracted first.
TEST(attention, large_scores_stay_finite) {
  const Case s{{1, 30, 30, 2, 1, 4, 4}, {true, 0, 0}};
  Arguments a(s);
  for (double& x : a.q) x *= 100;
  for (double& x : a.k) x *= 100;
  const Values dout = random_values(s.out_size(), 9);
  const Result y = forward<float>(s, a);
  const Gradients g = backward<float>(s, a, dout);
  for (const Values* v : {&y.out, &y.lse, &g.q, &g.k, &g.v})
    for (const double x : *v) ASSERT_TRUE(std::isfinite(x));
}

void expect_dry_run_counts_what_runs(const Case& s) {
  const Arguments a(s);
  Device dev(false, 1 << 24), dry(true, 0);
  for (Device* d : {&dev, &dry}) {
    Call<bf16> run(s, a);
    run.block(*d, Carry::fresh);
    run.finish(*d);
    run.backward(*d, random_values(s.out_size(), 9));
  }
  EXPECT_EQ(dev.flops(), dry.flops());
  EXPECT_EQ(dev.scratch.high_water(), dry.scratch.high_water());
  ASSERT_EQ(dev.work().size(), dry.work().size());
  for (std::size_t i = 0; i < dev.work().size(); ++i) EXPECT_EQ(dev.work()[i].calls, dry.work()[i].calls) << dev.work()[i].kernel;
}

TEST(attention, dry_run_counts_equal_real_run) { expect_dry_run_counts_what_runs({{2, 300, 560, 3, 1, 8, 8}, {true, 260, 0}}); }
TEST(attention, dry_run_counts_packed_documents_like_real_run) {
  for (const Case& s : large_packed_cases()) expect_dry_run_counts_what_runs(s);
}

TEST(attention, dry_run_counts_windows_like_real_run) {
  for (const Case& s : windowed(8, 600)) expect_dry_run_counts_what_runs(s);
}

// A dry run counts tiles in closed form instead of visiting them. For 16 million tokens there are two billion tiles.
TEST(attention, a_dry_run_counts_millions_of_tokens_quickly) {
  const Index tokens = Index(1) << 24, stack = 128, tile = 512;
  const AttentionShape shape{3, tokens, tokens, 2, 2, 16, 16};
  const Matrix<const float> x(nullptr, 3 * tokens, 32, 32);
  Device dry(true, 0);
  attention<float>(dry, shape, Mask{true, 0, 0}, scale, x, x, x, Carry::fresh, {});
  double tiles = 0, scores = 0;
  for (Index end = stack; end <= tokens; end += stack) tiles += double((end + tile - 1) / tile), scores += double(stack * end);
  const auto work = dry.work();
  ASSERT_EQ(work.size(), 2u);
  EXPECT_EQ(double(work[0].calls), 6 * (tiles + 2 * double(tokens / stack)));
  EXPECT_EQ(double(work[1].calls), 6 * 2 * tiles);
  EXPECT_NEAR(work[1].flops / (6 * 4 * 16 * scores), 1, 1e-12);
}

// Tiles in the future are skipped, so a causal mask costs little more than half of the FLOPs of a full one.
TEST(attention, future_tiles_are_skipped) {
  Case s{{1, 2048, 2048, 2, 1, 16, 16}, {true, 0, 0}};
  const std::vector<float> key_values(2048 * 32);
  const auto flops = [&](bool causal) {
    s.mask.causal = causal;
    Device dry(true, 0);
    attention<float>(dry, s.shape, s.full_mask(), scale, Matrix<const float>(key_values.data(), 2048, 32, 32),
                     Matrix<const float>(key_values.data(), 2048, 16, 16), Matrix<const float>(key_values.data(), 2048, 16, 16), Carry::fresh, {});
    return dry.flops();
  };
  EXPECT_LT(flops(true), 0.56 * flops(false));
  const double causal = flops(true);
  s.positions = positions_of(Lengths(16, 128), 1, 2048);  // sixteen documents: keys of 64 to 128 tokens instead of 1 to 2048
  EXPECT_LT(flops(true), 0.12 * causal);
  s.positions.clear(), s.mask.window = 128;  // the 128 queries of a tile see at most 255 keys
  EXPECT_LT(flops(true), 0.25 * causal);
}

}  // namespace gyr::testing::attention_suite
