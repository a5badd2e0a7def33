// SPDX-License-Identifier: BSD-3-Clause
// The chunked gated delta rule equals its recurrence token by token, and its gradients equal central differences, for
// any chunk length, packed documents and split sequences.
#include "kernels/ops/delta/gated_delta.hpp"

#include "regression/support/documents.hpp"
#include "regression/support/values.hpp"

namespace gyr::testing::gated_delta_suite {

namespace {

struct Arguments {
  Values q, k, v, b, a, dt_bias, a_log, initial;

  explicit Arguments(const DeltaShape& s)
      : q(random_values(s.rows() * s.num_groups * s.key_dim, 1)), k(random_values(s.rows() * s.num_groups * s.key_dim, 2)),
        v(random_values(s.rows() * s.num_heads * s.value_dim, 3)), b(random_values(s.rows() * s.num_heads, 4)),
        a(random_values(s.rows() * s.num_heads, 5)), dt_bias(random_values(s.num_heads, 6)), a_log(random_values(s.num_heads, 7)),
        initial(random_values(s.batch * s.state_elements(), 8)) {
    for (double& x : b) x *= 3;
    for (double& x : a) x = 3 * x - 2;
  }
  template <class T>
  void round() {
    for (Values* x : {&q, &k, &v, &b, &a}) *x = rounded<T>(*x);
    for (Values* x : {&dt_bias, &a_log, &initial}) *x = rounded<Acc<T>>(*x);
  }
};
using Part = Values Arguments::*;
const std::vector<std::pair<Part, const char*>> parts{{&Arguments::q, "q"},         {&Arguments::k, "k"},
                                                      {&Arguments::v, "v"},         {&Arguments::b, "b"},
                                                      {&Arguments::a, "a"},         {&Arguments::dt_bias, "dt_bias"},
                                                      {&Arguments::a_log, "a_log"}, {&Arguments::initial, "initial"}};
std::vector<std::pair<Part, Index>> parts_per_token(const DeltaShape& s) {
  const Index qk = s.num_groups * s.key_dim;
  return {{&Arguments::q, qk},
          {&Arguments::k, qk},
          {&Arguments::v, s.num_heads * s.value_dim},
          {&Arguments::b, s.num_heads},
          {&Arguments::a, s.num_heads}};
}

struct Result {
  Values y, last;
};
using Positions = std::vector<std::int32_t>;  // position of each token in its packed document

Values normalised(const Values& x, Index row, Index width) {
  Values n(x.begin() + row * width, x.begin() + (row + 1) * width);
  const double factor = 1 / std::sqrt(dot(n, n) + 1e-6);
  for (double& e : n) e *= factor;
  return n;
}

// The recurrence in the header, token by token. The state before a document is zero.
Result oracle(const DeltaShape& s, const Arguments& a, const Positions& positions = {}) {
  const auto [B, T, H, G, V, K, Q] = s;
  Result out{Values(B * T * H * V), a.initial};
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index h = 0; h < H; ++h) {
        const Index row = b * T + t, g = h / (H / G);
        const Values q = normalised(a.q, row * G + g, K), k = normalised(a.k, row * G + g, K);
        const double step = std::log1p(std::exp(a.a[row * H + h] + a.dt_bias[h])), beta = 1 / (1 + std::exp(-a.b[row * H + h]));
        const double decay = !positions.empty() && positions[row] == 0 ? 0 : std::exp(-std::exp(a.a_log[h]) * step);
        for (Index e = 0; e < V; ++e) {
          double* const state = &out.last[((b * H + h) * V + e) * K];
          double predicted = 0, y = 0;
          for (Index n = 0; n < K; ++n) state[n] *= decay, predicted += state[n] * k[n];
          const double change = beta * (a.v[(row * H + h) * V + e] - predicted);
          for (Index n = 0; n < K; ++n) state[n] += change * k[n], y += state[n] * q[n];
          out.y[(row * H + h) * V + e] = y / std::sqrt(double(K));
        }
      }
  return out;
}

template <class T>
struct Call {
  using A = Acc<T>;
  DeltaShape s;
  Block<T> q, k, v, b, a, y;
  Block<A> dt_bias, a_log, initial, states, last;
  Positions positions;

  Call(const DeltaShape& s, const Arguments& x, const Positions& packed = {})
      : s(s), q(s.rows(), s.num_groups * s.key_dim, x.q, 3), k(s.rows(), s.num_groups * s.key_dim, x.k, 1),
        v(s.rows(), s.num_heads * s.value_dim, x.v, 2), b(s.rows(), s.num_heads, x.b, 1), a(s.rows(), s.num_heads, x.a, 2),
        y(s.rows(), s.num_heads * s.value_dim), dt_bias(1, s.num_heads, x.dt_bias), a_log(1, s.num_heads, x.a_log),
        initial(s.batch, s.state_elements(), x.initial), states(s.batch * s.chunks(), s.state_elements()), last(s.batch, s.state_elements()),
        positions(packed) {}

  DeltaInput<T> input() {
    return {q.matrix(), k.matrix(), v.matrix(), b.matrix(), a.matrix(), positions.empty() ? Documents() : documents_of(positions)};
  }
  DeltaWeights<A> weights() { return {dt_bias.vector(), a_log.vector()}; }
  Tensor3<A> saved() { return states.tensor(s.batch, s.chunks(), s.state_elements()); }

  Result forward(Device& dev, bool from_zero = false) {
    gated_delta<T>(dev, s, input(), weights(), from_zero ? Tensor2<A>() : initial.tensor(), y.tensor(), saved(), last.tensor());
    return {y.values(), last.values()};
  }

  // The gradients of the weights begin at `start`, which is subtracted afterwards, so that the kernel must add to them.
  Arguments backward(Device& dev, const Values& dy_values, const Values& dlast_values, double start = 1) {
    const Index qk = s.num_groups * s.key_dim;
    Block<T> dy(s.rows(), s.num_heads * s.value_dim, dy_values), dq(s.rows(), qk, {}, 2), dk(s.rows(), qk, {}, 1),
        dv(s.rows(), s.num_heads * s.value_dim, {}, 3), db(s.rows(), s.num_heads, {}, 1), da(s.rows(), s.num_heads, {}, 2);
    Block<A> dlast(s.batch, s.state_elements(), dlast_values), dinitial(s.batch, s.state_elements());
    const Values starts(s.num_heads, start);
    Block<A> ddt_bias(1, s.num_heads, starts), da_log(1, s.num_heads, starts);
    gated_delta_backward<T>(dev, s, input(), weights(), saved(), dy.tensor(), dlast_values.empty() ? Tensor2<A>() : dlast.tensor(),
                            {dq.matrix(), dk.matrix(), dv.matrix(), db.matrix(), da.matrix()}, {ddt_bias.vector(), da_log.vector()},
                            dinitial.tensor());
    Arguments g(s);
    g.q = dq.values(), g.k = dk.values(), g.v = dv.values(), g.b = db.values(), g.a = da.values();
    g.dt_bias = ddt_bias.values(), g.a_log = da_log.values(), g.initial = dinitial.values();
    for (Values* x : {&g.dt_bias, &g.a_log})
      for (double& e : *x) e -= start;
    return g;
  }
};

Values random_dy(const DeltaShape& s) { return random_values(s.rows() * s.num_heads * s.value_dim, 11); }
Values random_dlast(const DeltaShape& s) { return random_values(s.batch * s.state_elements(), 12); }

template <class T>
Result forward(const DeltaShape& s, const Arguments& a, const Positions& positions = {}) {
  Device dev(false, 1 << 24);
  return Call<T>(s, a, positions).forward(dev);
}
template <class T>
Arguments backward(const DeltaShape& s, const Arguments& a, const Positions& positions = {}) {
  Device dev(false, 1 << 24);
  Call<T> call(s, a, positions);
  call.forward(dev);
  return call.backward(dev, random_dy(s), random_dlast(s));
}

// batch, seq_length, num_heads, num_groups, value_dim, key_dim, chunk_size
std::vector<DeltaShape> shapes() {
  return {{2, 11, 2, 1, 3, 4, 4}, {1, 8, 4, 2, 2, 3, 8}, {1, 5, 3, 3, 2, 2, 64},
          {2, 1, 2, 1, 3, 4, 8},  {1, 9, 6, 3, 2, 3, 1}, {1, 37, 2, 2, 4, 3, 35}};
}

// Packed documents whose boundaries fall on and next to those of chunks and of the blocks of the triangular system. In
// the last case, the first document of each sequence began before the sequence.
struct Packed {
  DeltaShape shape;
  Positions positions;
};
std::vector<Packed> packed_cases() {
  std::vector<Packed> list;
  const DeltaShape s{2, 19, 4, 2, 2, 3, 4};
  for (const Lengths& lengths : document_splits(19)) list.push_back({s, positions_of(lengths, 2, 19)});
  list.push_back({{1, 50, 2, 1, 3, 4, 50}, positions_of({15, 1, 16, 18}, 1, 50)});
  list.push_back({s, positions_of({6, 13}, 2, 19)});
  for (int t = 0; t < 6; ++t) list.back().positions[t] += 3;
  for (int t = 0; t < 13; ++t) list.back().positions[19 + t] += 3;
  return list;
}

}  // namespace

TEST(gated_delta, output_equals_the_recurrence) {
  for (const DeltaShape& s : shapes()) {
    const Arguments a(s);
    const Result x = forward<double>(s, a), y = oracle(s, a);
    expect_near(x.y, y.y, 1e-13, "y");
    expect_near(x.last, y.last, 1e-13, "last");
  }
}

TEST(gated_delta, packed_documents_equal_the_recurrence) {
  for (const auto& [s, positions] : packed_cases()) {
    const Arguments a(s);
    const Result x = forward<double>(s, a, positions), y = oracle(s, a, positions);
    expect_near(x.y, y.y, 1e-13, "y");
    expect_near(x.last, y.last, 1e-13, "last");
  }
}

TEST(gated_delta, missing_initial_state_means_zeros) {
  const DeltaShape s = shapes()[0];
  Arguments a(s);
  Device dev(false, 1 << 24);
  const Result x = Call<double>(s, a).forward(dev, true);
  a.initial.assign(a.initial.size(), 0);
  expect_near(x.y, oracle(s, a).y, 1e-13);
}

void expect_central_differences(const DeltaShape& s, const Positions& positions) {
  const Arguments a(s), g = backward<double>(s, a, positions);
  const Values dy = random_dy(s), dlast = random_dlast(s);
  for (const auto& [part, name] : parts) {
    const auto f = [&, part = part](const Values& v) {
      Arguments moved = a;
      moved.*part = v;
      const Result out = oracle(s, moved, positions);
      return dot(out.y, dy) + dot(out.last, dlast);
    };
    expect_gradient(f, a.*part, g.*part, name);
  }
}

TEST(gated_delta, gradients_match_central_differences) {
  for (const DeltaShape& s : shapes()) expect_central_differences(s, {});
}
TEST(gated_delta, packed_document_gradients_match_central_differences) {
  for (const auto& [s, positions] : packed_cases()) expect_central_differences(s, positions);
}

TEST(gated_delta, result_does_not_depend_on_chunk_length) {
  DeltaShape s{2, 150, 4, 2, 5, 6, 1};
  const Arguments a(s);
  for (const Positions& positions : {Positions(), positions_of({30, 1, 33, 64, 150}, 2, 150)}) {
    s.chunk_size = 1;
    const Result y = forward<double>(s, a, positions);
    const Arguments g = backward<double>(s, a, positions);
    for (const Index chunk : {4, 17, 64, 150, 1000}) {
      s.chunk_size = chunk;
      const Result z = forward<double>(s, a, positions);
      const Arguments h = backward<double>(s, a, positions);
      expect_near(z.y, y.y, 1e-13, "y");
      expect_near(z.last, y.last, 1e-13, "last");
      for (const auto& [part, name] : parts) expect_near(h.*part, g.*part, 1e-12, name);
    }
  }
}

// Forward and backward: a change of one document's inputs and output gradient changes no bit of another document.
TEST(gated_delta, packed_documents_do_not_influence_each_other) {
  const DeltaShape s{1, 90, 2, 1, 5, 6, 32};
  const Positions positions = positions_of({20, 1, 11, 40, 90}, 1, 90);
  const Arguments a(s);
  const Values dy = random_dy(s);
  const auto run = [&](const Arguments& with, const Values& asked) {
    Device dev(false, 1 << 24);
    Call<float> call(s, with, positions);
    const Values y = call.forward(dev).y;
    return std::pair(y, call.backward(dev, asked, {}));
  };
  const auto [y, g] = run(a, dy);
  for (const Extent& changed : extents_of(positions, 90)) {
    Arguments b = a;
    Values asked = dy;
    const auto change = [&](Values& x, Index width) {
      Values part = extract(x, changed, 90, width);
      for (double& v : part) v = 3 * v + 0.5;
      put_back(part, changed, 90, width, x);
    };
    for (const auto& [part, width] : parts_per_token(s)) change(b.*part, width);
    change(asked, 10);
    const auto [z, h] = run(b, asked);
    for (const Extent& e : extents_of(positions, 90)) {
      EXPECT_EQ(extract(y, e, 90, 10) == extract(z, e, 90, 10), e.first != changed.first) << e.first << " " << changed.first;
      if (e.first == changed.first) continue;
      for (const auto& [part, width] : parts_per_token(s)) EXPECT_EQ(extract(g.*part, e, 90, width), extract(h.*part, e, 90, width)) << e.first;
    }
  }
}

// The sequence is split at any place. The last state of the first part is the initial state of the second, and its
// gradient flows back.
TEST(gated_delta, split_sequence_with_carried_state_equals_one_call) {
  const DeltaShape full{1, 13, 2, 1, 3, 4, 4};
  const Arguments a(full), g = backward<double>(full, a);
  const Result y = forward<double>(full, a);
  const Values dy = random_dy(full), dlast = random_dlast(full);
  Device dev(false, 1 << 24);
  for (const Index split_at : {1, 4, 7, 12}) {
    DeltaShape first = full, second = full;
    first.seq_length = split_at, second.seq_length = full.seq_length - split_at;
    Arguments head = a, rest = a;
    for (const auto& [part, width] : parts_per_token(full)) {
      const auto middle = (a.*part).begin() + split_at * width;
      (head.*part).assign((a.*part).begin(), middle), (rest.*part).assign(middle, (a.*part).end());
    }
    Call<double> one(first, head);
    const Result begin = one.forward(dev);
    rest.initial = begin.last;
    Call<double> two(second, rest);
    const Result end = two.forward(dev);
    Values joined = begin.y;
    joined.insert(joined.end(), end.y.begin(), end.y.end());
    expect_near(joined, y.y, 1e-13);
    expect_near(end.last, y.last, 1e-13);

    const Arguments late = two.backward(dev, Values(dy.begin() + split_at * 6, dy.end()), dlast);
    const Arguments early = one.backward(dev, Values(dy.begin(), dy.begin() + split_at * 6), late.initial);
    expect_near(early.initial, g.initial, 1e-12, "initial");
    for (const auto& [part, width] : parts_per_token(full)) {
      Values both = early.*part;
      both.insert(both.end(), (late.*part).begin(), (late.*part).end());
      expect_near(both, g.*part, 1e-12);
    }
    for (const Part weight : {&Arguments::dt_bias, &Arguments::a_log})
      for (Index h = 0; h < full.num_heads; ++h) EXPECT_NEAR((early.*weight)[h] + (late.*weight)[h], (g.*weight)[h], 1e-12);
  }
}

// Decoding: one token per call, with the state updated in place and nothing saved.
TEST(gated_delta, decoding_in_place_equals_one_call) {
  const DeltaShape full{1, 13, 2, 1, 3, 4, 4};
  const Arguments a(full);
  const Result y = forward<double>(full, a);
  Device dev(false, 1 << 24);
  DeltaShape step = full;
  step.seq_length = step.chunk_size = 1;
  Values outputs, state = a.initial;
  for (Index t = 0; t < full.seq_length; ++t) {
    Arguments token = a;
    token.initial = state;
    for (const auto& [part, width] : parts_per_token(full)) token.*part = Values((a.*part).begin() + t * width, (a.*part).begin() + (t + 1) * width);
    Call<double> call(step, token);
    gated_delta<double>(dev, step, call.input(), call.weights(), call.initial.tensor(), call.y.tensor(), {}, call.initial.tensor());
    const Values out = call.y.values();
    outputs.insert(outputs.end(), out.begin(), out.end());
    state = call.initial.values();
  }
  expect_near(outputs, y.y, 1e-13, "y");
  expect_near(state, y.last, 1e-13, "last");
}

// last = initial transition + local for each head, also if a document begins within the tokens.
TEST(gated_delta, block_transition_maps_initial_to_last_state) {
  const DeltaShape s{2, 11, 4, 2, 3, 4, 4};
  for (const Positions& positions : {Positions(), positions_of({6, 20}, 2, 11)}) {
    const Arguments a(s);
    Device dev(false, 1 << 24);
    Call<double> call(s, a, positions);
    const Values last = call.forward(dev).last;
    Block<double> transition(s.batch, s.num_heads * s.key_dim * s.key_dim), local(s.batch, s.state_elements());
    gated_delta_block<double>(dev, s, call.input(), call.weights(), transition.tensor(), local.tensor());
    Values mapped = local.values();
    const Values m = transition.values();
    for (Index i = 0; i < Index(mapped.size()); ++i)
      for (Index n = 0; n < s.key_dim; ++n)
        mapped[i] += a.initial[i / s.key_dim * s.key_dim + n] * m[(i / (s.value_dim * s.key_dim) * s.key_dim + n) * s.key_dim + i % s.key_dim];
    expect_near(mapped, last, 1e-13);
  }
}

// Without input gradients, only the gradient of the initial state is computed.
TEST(gated_delta, state_gradient_alone_equals_full_backward) {
  const DeltaShape s = shapes()[0];
  const Arguments a(s);
  Device dev(false, 1 << 24);
  Call<double> call(s, a);
  call.forward(dev);
  const Arguments g = call.backward(dev, random_dy(s), {});
  Block<double> dy(s.rows(), s.num_heads * s.value_dim, random_dy(s)), dinitial(s.batch, s.state_elements());
  gated_delta_backward<double>(dev, s, call.input(), call.weights(), call.saved(), dy.tensor(), {}, {}, {}, dinitial.tensor());
  EXPECT_EQ(dinitial.values(), g.initial);
}

TEST(gated_delta, future_tokens_do_not_influence_the_past) {
  const DeltaShape s{1, 90, 2, 1, 5, 6, 32};
  const Arguments a(s);
  const Result y = forward<float>(s, a);
  for (const Index t : {5, 31, 32, 70, 89}) {
    Arguments later = a;
    for (const auto& [part, width] : parts_per_token(s))
      for (Index i = t * width; i < Index((a.*part).size()); ++i) (later.*part)[i] = 20 * (a.*part)[i] + 1;
    const Result z = forward<float>(s, later);
    EXPECT_TRUE(std::equal(y.y.begin(), y.y.begin() + t * 10, z.y.begin())) << t;
    EXPECT_NE(y.y[t * 10], z.y[t * 10]);
  }
}

TEST(gated_delta, float_and_bf16_follow_double) {
  const DeltaShape s{2, 75, 4, 2, 8, 16, 32};
  for (const Positions& positions : {Positions(), positions_of({10, 1, 40, 75}, 2, 75)}) {
    Arguments a(s);
    a.round<bf16>();
    const Result y = forward<double>(s, a, positions), f = forward<float>(s, a, positions), h = forward<bf16>(s, a, positions);
    expect_near(f.y, y.y, 1e-5);
    expect_near(h.y, y.y, 1e-2);
    expect_near(h.last, y.last, 1e-2);
    const Arguments g = backward<double>(s, a, positions), gf = backward<float>(s, a, positions), gh = backward<bf16>(s, a, positions);
    for (const auto& [part, name] : parts) {
      expect_near(gf.*part, g.*part, 1e-5, name);
      expect_near(gh.*part, g.*part, 2e-2, name);
    }
  }
}

// Decay rates up to e^16 and steps of softplus(40): the decay underflows to zero, and nothing becomes infinite.
TEST(gated_delta, extreme_decays_stay_finite) {
  const DeltaShape s{1, 40, 4, 1, 3, 4, 16};
  Arguments a(s);
  for (std::size_t i = 0; i < a.a.size(); ++i) a.a[i] = i % 3 == 0 ? 40 : i % 3 == 1 ? -40 : a.a[i];
  a.a_log = {16, std::log(16.0), -16, 0};
  for (Index i = 0; i < 4; ++i) a.k[i] = a.q[i] = 0;
  const Result y = forward<float>(s, a), want = oracle(s, a);
  expect_near(y.y, want.y, 1e-5);
  const Arguments g = backward<float>(s, a);
  for (const auto& [part, name] : parts)
    for (const double v : g.*part) ASSERT_TRUE(std::isfinite(v)) << name;
}

}  // namespace gyr::testing::gated_delta_suite
