// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/ssd.hpp"

#include "kernels/ops/ssd_chunk.hpp"
#include "regression/support/documents.hpp"
#include "regression/support/values.hpp"

namespace gyr::testing::ssd_suite {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Arguments {
  Values x, b, c, dt_raw, dt_bias, a_log, d, initial;

  explicit Arguments(const SsdShape& s)
      : x(random_values(s.batch * s.seq_length * s.num_heads * s.head_dim, 1)),
        b(random_values(s.batch * s.seq_length * s.num_groups * s.state_size, 2)),
        c(random_values(s.batch * s.seq_length * s.num_groups * s.state_size, 3)), dt_raw(random_values(s.batch * s.seq_length * s.num_heads, 4)),
        dt_bias(random_values(s.num_heads, 5)), a_log(random_values(s.num_heads, 6)), d(random_values(s.num_heads, 7)),
        initial(random_values(s.batch * s.num_heads * s.head_dim * s.state_size, 8)) {
    for (double& v : dt_raw) v *= 3;  // so that time steps lie below, between and above the clamps
  }

  template <class T>
  void round() {
    for (Values* v : {&x, &b, &c, &dt_raw}) *v = rounded<T>(*v);
    for (Values* v : {&dt_bias, &a_log, &d, &initial}) *v = rounded<Acc<T>>(*v);
  }
};
using Part = Values Arguments::*;
const std::vector<std::pair<Part, const char*>> parts{{&Arguments::x, "x"},
                                                      {&Arguments::b, "b"},
                                                      {&Arguments::c, "c"},
                                                      {&Arguments::dt_raw, "dt_raw"},
                                                      {&Arguments::dt_bias, "dt_bias"},
                                                      {&Arguments::a_log, "a_log"},
                                                      {&Arguments::d, "d"},
                                                      {&Arguments::initial, "initial"}};

struct Result {
  Values y, last;
};

using Positions = std::vector<std::int32_t>;  // position of each token in its packed document

// The recurrence of the SSD header, token by token. The state before a document is zero.
Result oracle(const SsdShape& s, const Arguments& a, const Positions& positions = {}) {
  const auto [B, T, H, G, P, N, Q, low, high] = s;
  Result out{Values(B * T * H * P), a.initial};
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index h = 0; h < H; ++h) {
        const Index row = b * T + t, g = h / (H / G);
        const double v = a.dt_raw[row * H + h] + a.dt_bias[h];
        const double dt = std::min(std::max(v > 20 ? v : std::log1p(std::exp(v)), low), high);
        const double decay = !positions.empty() && positions[row] == 0 ? 0 : std::exp(-std::exp(a.a_log[h]) * dt);
        for (Index p = 0; p < P; ++p) {
          const double x = a.x[(row * H + h) * P + p];
          double y = a.d[h] * x;
          for (Index n = 0; n < N; ++n) {
            double& state = out.last[((b * H + h) * P + p) * N + n];
            state = decay * state + dt * x * a.b[(row * G + g) * N + n];
            y += state * a.c[(row * G + g) * N + n];
          }
          out.y[(row * H + h) * P + p] = y;
        }
      }
  return out;
}

template <class T>
struct Call {
  using A = Acc<T>;
  SsdShape s;
  Index rows, state;
  Block<T> x, b, c, dt_raw, y;
  Block<A> dt_bias, a_log, d, initial, dt, states, last;
  Positions positions;

  Call(const SsdShape& s, const Arguments& a, const Positions& packed = {})
      : s(s), rows(s.batch * s.seq_length), state(s.num_heads * s.head_dim * s.state_size), x(rows, s.num_heads * s.head_dim, a.x, 3),
        b(rows, s.num_groups * s.state_size, a.b, 1), c(rows, s.num_groups * s.state_size, a.c, 2), dt_raw(rows, s.num_heads, a.dt_raw, 1),
        y(rows, s.num_heads * s.head_dim), dt_bias(1, s.num_heads, a.dt_bias), a_log(1, s.num_heads, a.a_log), d(1, s.num_heads, a.d),
        initial(s.batch, state, a.initial), dt(rows, s.num_heads), states(s.batch * s.chunks(), state), last(s.batch, state), positions(packed) {}

  SsdInput<T> input() { return {x.matrix(), b.matrix(), c.matrix(), dt_raw.matrix(), positions.empty() ? Documents() : documents_of(positions)}; }
  SsdWeights<A> weights() { return {dt_bias.vector(), a_log.vector(), d.vector()}; }
  SsdSaved<A> saved() { return {dt.tensor(), states.tensor(s.batch, s.chunks(), state)}; }

  Result forward(Device& dev, bool from_zero = false) {
    ssd<T>(dev, s, input(), weights(), from_zero ? Tensor2<A>() : initial.tensor(), y.tensor(), saved(), last.tensor());
    return {y.values(), last.values()};
  }

  // The gradients of the weights begin at `start`, which is subtracted afterwards, so that the kernel must add to them.
  Arguments backward(Device& dev, const Values& dy_values, const Values& dlast_values, double start = 1) {
    Block<T> dy(rows, s.num_heads * s.head_dim, dy_values), dx(rows, s.num_heads * s.head_dim, {}, 2), db(rows, s.num_groups * s.state_size, {}, 3),
        dc(rows, s.num_groups * s.state_size, {}, 1), ddt(rows, s.num_heads, {}, 2);
    Block<A> dlast(s.batch, state, dlast_values), dinitial(s.batch, state);
    const Values ones(s.num_heads, start);
    Block<A> ddt_bias(1, s.num_heads, ones), da_log(1, s.num_heads, ones), dd(1, s.num_heads, ones);
    ssd_backward<T>(dev, s, input(), weights(), saved(), dy.tensor(), dlast_values.empty() ? Tensor2<A>() : dlast.tensor(),
                    {dx.matrix(), db.matrix(), dc.matrix(), ddt.matrix()}, {ddt_bias.vector(), da_log.vector(), dd.vector()}, dinitial.tensor());
    Arguments g(s);
    g.x = dx.values(), g.b = db.values(), g.c = dc.values(), g.dt_raw = ddt.values();
    g.dt_bias = ddt_bias.values(), g.a_log = da_log.values(), g.d = dd.values(), g.initial = dinitial.values();
    for (Values* v : {&g.dt_bias, &g.a_log, &g.d})
      for (double& e : *v) e -= start;
    return g;
  }
};

Values random_dy(const SsdShape& s) { return random_values(s.batch * s.seq_length * s.num_heads * s.head_dim, 11); }
Values random_dlast(const SsdShape& s) { return random_values(s.batch * s.num_heads * s.head_dim * s.state_size, 12); }

template <class T>
Result forward(const SsdShape& s, const Arguments& a, const Positions& positions = {}) {
  Device dev(false, 1 << 24);
  return Call<T>(s, a, positions).forward(dev);
}
template <class T>
Arguments backward(const SsdShape& s, const Arguments& a, const Positions& positions = {}) {
  Device dev(false, 1 << 24);
  Call<T> call(s, a, positions);
  call.forward(dev);
  return call.backward(dev, random_dy(s), random_dlast(s));
}

// batch, seq_length, num_heads, num_groups, head_dim, state_size, chunk_size, dt_low, dt_high
std::vector<SsdShape> shapes() {
  return {{2, 11, 2, 1, 3, 4, 4, 0, infinity}, {1, 8, 4, 2, 2, 3, 8, 0, infinity}, {1, 5, 3, 3, 2, 2, 64, 0, infinity},
          {2, 1, 2, 1, 3, 4, 8, 0, infinity},  {1, 9, 6, 3, 2, 3, 1, 0, infinity}, {1, 7, 2, 2, 4, 3, 4, 0.2, 0.9}};
}

// Packed documents whose boundaries fall on and next to the boundaries of chunks of 4 tokens. In the last case, the
// first document of each sequence began before the sequence.
struct Packed {
  SsdShape shape;
  Positions positions;
};
std::vector<Packed> packed_cases() {
  std::vector<Packed> list;
  const SsdShape s{2, 19, 4, 2, 2, 3, 4, 0, infinity};
  for (const Lengths& lengths : document_splits(19)) list.push_back({s, positions_of(lengths, 2, 19)});
  list.push_back({{1, 150, 2, 1, 3, 4, 150, 0, infinity}, positions_of({20, 1, 45, 64, 150}, 1, 150)});  // one chunk of several 64-row bands
  list.push_back({s, positions_of({6, 13}, 2, 19)});
  for (int t = 0; t < 6; ++t) list.back().positions[t] += 3;
  for (int t = 0; t < 13; ++t) list.back().positions[19 + t] += 3;
  return list;
}

}  // namespace

TEST(ssd, output_equals_the_recurrence) {
  for (const SsdShape& s : shapes()) {
    const Arguments a(s);
    const Result x = forward<double>(s, a), y = oracle(s, a);
    expect_near(x.y, y.y, 1e-13, "y");
    expect_near(x.last, y.last, 1e-13, "last");
  }
}

TEST(ssd, packed_documents_equal_the_recurrence) {
  for (const auto& [s, positions] : packed_cases()) {
    const Arguments a(s);
    const Result x = forward<double>(s, a, positions), y = oracle(s, a, positions);
    expect_near(x.y, y.y, 1e-13, "y");
    expect_near(x.last, y.last, 1e-13, "last");
  }
}

TEST(ssd, missing_initial_state_means_zeros) {
  const SsdShape s = shapes()[0];
  Arguments a(s);
  Device dev(false, 1 << 24);
  const Result x = Call<double>(s, a).forward(dev, true);
  a.initial.assign(a.initial.size(), 0);
  expect_near(x.y, oracle(s, a).y, 1e-13);
}

void expect_central_differences(const SsdShape& s, const Positions& positions) {
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

TEST(ssd, gradients_match_central_differences) {
  for (const SsdShape& s : shapes()) expect_central_differences(s, {});
}
TEST(ssd, packed_document_gradients_match_central_differences) {
  for (const auto& [s, positions] : packed_cases()) expect_central_differences(s, positions);
}

// Packed documents must give the same as a separate run of each document from a zero state. The weight gradients are
// the sums over these runs.
TEST(ssd, packed_documents_equal_separate_runs) {
  for (const auto& [s, positions] : packed_cases()) {
    if (positions[0] > 0) continue;
    const Index T = s.seq_length, x = s.num_heads * s.head_dim, bc = s.num_groups * s.state_size;
    const std::vector<std::pair<Part, Index>> per_token{
        {&Arguments::x, x}, {&Arguments::b, bc}, {&Arguments::c, bc}, {&Arguments::dt_raw, s.num_heads}};
    const Arguments a(s);
    Device dev(false, 1 << 24);
    Call<double> packed(s, a, positions);
    const Values y = packed.forward(dev).y, dy = random_dy(s);
    const Arguments g = packed.backward(dev, dy, {});
    Values separate = y;
    Arguments h = g;
    for (const Part weight : {&Arguments::dt_bias, &Arguments::a_log, &Arguments::d}) (h.*weight).assign((h.*weight).size(), 0);
    for (const Extent& e : extents_of(positions, T)) {
      SsdShape one = s;
      one.batch = 1, one.seq_length = e.count;
      Arguments b = a;
      for (const auto& [part, width] : per_token) b.*part = extract(a.*part, e, T, width);
      b.initial.resize(x * s.state_size);
      Call<double> single_document(one, b);
      put_back(single_document.forward(dev, true).y, e, T, x, separate);
      const Arguments d = single_document.backward(dev, extract(dy, e, T, x), {});
      for (const auto& [part, width] : per_token) put_back(d.*part, e, T, width, h.*part);
      for (const Part weight : {&Arguments::dt_bias, &Arguments::a_log, &Arguments::d})
        for (Index i = 0; i < s.num_heads; ++i) (h.*weight)[i] += (d.*weight)[i];
    }
    expect_near(y, separate, 1e-13, "y");
    EXPECT_EQ(g.initial, Values(g.initial.size(), 0));  // no document began before its sequence, so none uses the initial state
    h.initial = g.initial;
    for (const auto& [part, name] : parts) expect_near(g.*part, h.*part, 1e-12, name);
  }
}

template <class T>
void expect_the_bits_of_no_documents() {
  for (const SsdShape& s : shapes()) {
    Positions positions = positions_of({s.seq_length}, s.batch, s.seq_length);
    for (auto& p : positions) p += 1;  // the document began before the sequence, which has an initial state
    const Arguments a(s);
    const Result y = forward<T>(s, a), z = forward<T>(s, a, positions);
    const Arguments g = backward<T>(s, a), h = backward<T>(s, a, positions);
    EXPECT_EQ(y.y, z.y);
    EXPECT_EQ(y.last, z.last);
    for (const auto& [part, name] : parts) EXPECT_EQ(g.*part, h.*part) << name;
  }
}

TEST(ssd, one_document_per_sequence_changes_no_bit) {
  expect_the_bits_of_no_documents<float>();
  expect_the_bits_of_no_documents<double>();
}

// Forward and backward: a change of one document's inputs and output gradient changes no bit of another document.
TEST(ssd, packed_documents_do_not_influence_each_other) {
  const SsdShape s{1, 90, 2, 1, 5, 6, 32, 0, infinity};
  const Positions positions = positions_of({20, 1, 11, 40, 90}, 1, 90);
  const std::vector<std::pair<Part, Index>> per_token{{&Arguments::x, 10}, {&Arguments::b, 6}, {&Arguments::c, 6}, {&Arguments::dt_raw, 2}};
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
    for (const auto& [part, width] : per_token) change(b.*part, width);
    change(asked, 10);
    const auto [z, h] = run(b, asked);
    for (const Extent& e : extents_of(positions, 90)) {
      EXPECT_EQ(extract(y, e, 90, 10) == extract(z, e, 90, 10), e.first != changed.first) << e.first << " " << changed.first;
      if (e.first == changed.first) continue;
      for (const auto& [part, width] : per_token) EXPECT_EQ(extract(g.*part, e, 90, width), extract(h.*part, e, 90, width)) << e.first;
    }
  }
}

TEST(ssd, missing_last_state_gradient_means_zeros) {
  const SsdShape s = shapes()[0];
  const Arguments a(s);
  Device dev(false, 1 << 24);
  Call<double> call(s, a);
  call.forward(dev);
  const Values zeros(random_dlast(s).size(), 0);
  const Arguments g = call.backward(dev, random_dy(s), {}), h = call.backward(dev, random_dy(s), zeros);
  for (const auto& [part, name] : parts) EXPECT_EQ(g.*part, h.*part) << name;
}

TEST(ssd, result_does_not_depend_on_chunk_length) {
  SsdShape s{2, 150, 4, 2, 5, 6, 1, 0, infinity};
  const Arguments a(s);
  const Result y = forward<double>(s, a);
  const Arguments g = backward<double>(s, a);
  for (const Index chunk : {4, 8, 64, 150, 1000}) {
    s.chunk_size = chunk;
    const Result z = forward<double>(s, a);
    const Arguments h = backward<double>(s, a);
    expect_near(z.y, y.y, 1e-13, "y");
    expect_near(z.last, y.last, 1e-13, "last");
    for (const auto& [part, name] : parts) expect_near(h.*part, g.*part, 1e-12, name);
  }
}

TEST(ssd, packed_documents_do_not_depend_on_chunk_length) {
  SsdShape s{2, 150, 4, 2, 5, 6, 1, 0, infinity};
  const Positions positions = positions_of({30, 1, 33, 64, 150}, 2, 150);
  const Arguments a(s), g = backward<double>(s, a, positions);
  const Result y = forward<double>(s, a, positions);
  for (const Index chunk : {8, 64, 150}) {
    s.chunk_size = chunk;
    expect_near(forward<double>(s, a, positions).y, y.y, 1e-13, "y");
    const Arguments h = backward<double>(s, a, positions);
    for (const auto& [part, name] : parts) expect_near(h.*part, g.*part, 1e-12, name);
  }
}

// The sequence is split at any place. The last state of the first part is the initial state of the second, and its
// gradient flows back.
TEST(ssd, split_sequence_with_carried_state_equals_one_call) {
  const SsdShape full{1, 13, 2, 1, 3, 4, 4, 0, infinity};
  const Arguments a(full), g = backward<double>(full, a);
  const Result y = forward<double>(full, a);
  const Values dy = random_dy(full), dlast = random_dlast(full);
  Device dev(false, 1 << 24);
  for (const Index split_at : {1, 4, 7, 12}) {
    SsdShape first = full, second = full;
    first.seq_length = split_at, second.seq_length = full.seq_length - split_at;
    Arguments head = a, rest = a;
    const auto split = [&](Part part, Index per_token) {
      const auto middle = (a.*part).begin() + split_at * per_token;
      (head.*part).assign((a.*part).begin(), middle), (rest.*part).assign(middle, (a.*part).end());
    };
    split(&Arguments::x, 6), split(&Arguments::b, 4), split(&Arguments::c, 4), split(&Arguments::dt_raw, 2);
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
    for (const auto& [part, name] : parts) {
      Values sum = early.*part;
      if ((early.*part).size() == (late.*part).size() && part != &Arguments::initial && (a.*part).size() == 2)
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (late.*part)[i];  // weight gradients add up
      else if (part != &Arguments::initial) sum.insert(sum.end(), (late.*part).begin(), (late.*part).end());
      expect_near(sum, g.*part, 1e-12, name);
    }
  }
}

TEST(ssd, last_state_may_alias_the_initial_state) {
  const SsdShape s = shapes()[0];
  Call<float> separate(s, Arguments(s)), joint(s, Arguments(s));
  Device dev(false, 1 << 24);
  const Result y = separate.forward(dev);
  ssd<float>(dev, s, joint.input(), joint.weights(), joint.initial.tensor(), joint.y.tensor(), joint.saved(), joint.initial.tensor());
  EXPECT_EQ(joint.y.values(), y.y);
  EXPECT_EQ(joint.initial.values(), y.last);
}

TEST(ssd, future_tokens_do_not_influence_the_past) {
  const SsdShape s{1, 90, 2, 1, 5, 6, 32, 0, infinity};
  const Arguments a(s);
  const Result y = forward<float>(s, a);
  for (const Index t : {5, 31, 32, 70, 89}) {
    Arguments later = a;
    const auto change = [&](Part part, Index per_token) {
      for (Index i = t * per_token; i < Index((a.*part).size()); ++i) (later.*part)[i] = 20 * (a.*part)[i] + 1;
    };
    change(&Arguments::x, 10), change(&Arguments::b, 6), change(&Arguments::c, 6), change(&Arguments::dt_raw, 2);
    const Result z = forward<float>(s, later);
    EXPECT_TRUE(std::equal(y.y.begin(), y.y.begin() + t * 10, z.y.begin())) << t;
    EXPECT_NE(y.y[t * 10], z.y[t * 10]);
  }
}

void expect_float_and_bf16_follow_double(const Positions& positions) {
  const SsdShape s{2, 75, 4, 2, 8, 16, 32, 0, infinity};
  Arguments a(s);
  a.round<bf16>();
  const Result y = forward<double>(s, a, positions), f = forward<float>(s, a, positions), h = forward<bf16>(s, a, positions);
  expect_near(f.y, y.y, 1e-5);
  expect_near(h.y, y.y, 1e-2);
  expect_near(h.last, y.last, 1e-2);  // on processors with bf16 GEMMs, the inputs of the state are rounded to bf16
  const Arguments g = backward<double>(s, a, positions), gf = backward<float>(s, a, positions), gh = backward<bf16>(s, a, positions);
  for (const auto& [part, name] : parts) {
    expect_near(gf.*part, g.*part, 1e-5, name);
    expect_near(gh.*part, g.*part, 2e-2, name);
  }
}

TEST(ssd, float_and_bf16_follow_double) {
  expect_float_and_bf16_follow_double({});
  expect_float_and_bf16_follow_double(positions_of({10, 1, 40, 75}, 2, 75));
}

// Relative distance |a - b| / |b| of two vectors.
double distance(const Values& a, const Values& b) {
  double separate = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) separate += (a[i] - b[i]) * (a[i] - b[i]), length += b[i] * b[i];
  return separate == 0 ? 0 : std::sqrt(separate / length);
}

// Random case: several chunks of any length, heads with decay rates from 1 to 24 as at initialization, time steps of
// any size, and packed documents or none.
struct LongChunks {
  SsdShape shape;
  Arguments arguments;
  Positions positions;

  explicit LongChunks(std::uint64_t seed) : LongChunks(random_values(8, 1000 + seed)) {}
  std::string name() const {
    return fmt::format("length {}, heads {}, groups {}, width {}, state {}, chunk {}, {} documents", shape.seq_length, shape.num_heads,
                       shape.num_groups, shape.head_dim, shape.state_size, shape.chunk_size, positions.empty() ? 1 : 3);
  }

 private:
  explicit LongChunks(const Values& draw) : shape(shape_of(draw)), arguments(shape) {
    for (Index h = 0; h < shape.num_heads; ++h)
      arguments.a_log[h] = std::log(1 + 24.0 * double(h) / double(shape.num_heads)), arguments.dt_bias[h] += 3 * draw[6] - 1;
    for (double& v : arguments.dt_raw) v /= 3;
    arguments.round<float>();
    const Index third = shape.seq_length / 3;
    if (draw[7] > 0) positions = positions_of({third, 1, shape.seq_length - third - 1}, 1, shape.seq_length);
  }
  static SsdShape shape_of(const Values& draw) {
    const auto among = [&](int i, Index least, Index most) { return least + Index((draw[i] + 1) / 2 * double(most - least + 1)); };
    return {1, among(1, 200, 600), 2 * among(0, 1, 4), among(2, 1, 2), among(3, 2, 8), among(4, 4, 16), among(5, 32, 600), 0, infinity};
  }
};

// The exponents in a chunk are differences of prefix sums, which reach thousands. For any chunk length, the error must
// be float rounding and not a loss of digits in these sums.
TEST(ssd, float_stays_accurate_in_long_chunks) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const LongChunks c(seed);
    const auto both = [&]<class T>(T) {
      Device dev(false, 1 << 25);
      Call<T> call(c.shape, c.arguments, c.positions);
      const Values y = call.forward(dev).y;
      return std::pair(y, call.backward(dev, random_dy(c.shape), random_dlast(c.shape), 0));
    };
    const auto [y, g] = both(double());
    const auto [f, h] = both(float());
    EXPECT_LT(distance(f, y), 2e-7) << "seed " << seed << ": " << c.name();
    for (const auto& [part, name] : parts) {
      const bool sum = part == &Arguments::a_log || part == &Arguments::dt_bias;  // sums over all tokens, with terms of both signs
      EXPECT_LT(distance(h.*part, g.*part), sum ? 4e-6 : 8e-7) << "seed " << seed << ": " << name << ", " << c.name();
    }
  }
}

// Time steps of softplus(+-40) and decay rates up to e^16: the decay underflows to exactly zero, and nothing becomes
// infinite.
TEST(ssd, extreme_time_steps_and_rates_stay_finite) {
  const SsdShape s{1, 40, 4, 1, 3, 4, 16, 0, infinity};
  Arguments a(s);
  for (std::size_t i = 0; i < a.dt_raw.size(); ++i) a.dt_raw[i] = i % 3 == 0 ? 40 : i % 3 == 1 ? -40 : a.dt_raw[i];
  a.a_log = {16, std::log(16.0), -16, 0};
  const auto check = [&]<class T>(T) {
    const Result y = forward<T>(s, a);
    const Arguments g = backward<T>(s, a);
    for (const double v : y.y) ASSERT_TRUE(std::isfinite(v));
    for (const auto& [part, name] : parts)
      for (const double v : g.*part) ASSERT_TRUE(std::isfinite(v)) << name;
  };
  check(double()), check(float()), check(bf16());
  expect_near(forward<double>(s, a).y, oracle(s, a).y, 1e-11);
  a.dt_raw.assign(a.dt_raw.size(), 40);  // head 0 forgets at once: its last state is dt x b' of the last token
  const Result y = forward<float>(s, a), exact = oracle(s, a);
  expect_near(Values(y.last.begin(), y.last.begin() + 12), Values(exact.last.begin(), exact.last.begin() + 12), 1e-6);
}

// Outside of [low, high] the time step equals the bound, and its gradient is exactly zero.
TEST(ssd, clamped_time_steps_have_no_gradient) {
  const SsdShape s = shapes().back();
  Arguments a(s);
  a.dt_bias = {-6, 6};
  const Arguments g = backward<double>(s, a);
  EXPECT_EQ(g.dt_raw, Values(g.dt_raw.size(), 0));
  EXPECT_EQ(g.dt_bias, Values(2, 0));
  EXPECT_NE(g.a_log[0], 0);
}

void expect_dry_run_counts_what_runs(const Positions& positions) {
  const SsdShape s{2, 75, 4, 2, 8, 16, 32, 0, infinity};
  const Arguments a(s);
  Device dev(false, 1 << 24), dry(true, 0);
  for (Device* d : {&dev, &dry}) {
    Call<bf16> call(s, a, positions);
    call.forward(*d);
    call.backward(*d, random_dy(s), random_dlast(s));
  }
  EXPECT_EQ(dev.flops(), dry.flops());
  EXPECT_EQ(dev.scratch.high_water(), dry.scratch.high_water());
  ASSERT_EQ(dev.work().size(), dry.work().size());
  for (std::size_t i = 0; i < dev.work().size(); ++i) EXPECT_EQ(dev.work()[i].calls, dry.work()[i].calls) << dev.work()[i].kernel;
}

TEST(ssd, dry_run_counts_the_same_work_and_scratch) { expect_dry_run_counts_what_runs({}); }
TEST(ssd, dry_run_counts_the_work_of_packed_documents) { expect_dry_run_counts_what_runs(positions_of({10, 1, 40, 75}, 2, 75)); }

// Chunks of 16 million tokens are counted without a loop: the FLOPs are those of one chunk times the number of chunks.
TEST(ssd, dry_run_counts_flops_without_looping_over_tokens) {
  const auto flops = [](Index batch, Index seq_length, Index heads) {
    const SsdShape s{batch, seq_length, heads, 2, 8, 16, 32, 0, infinity};
    const Index rows = batch * seq_length, inner = heads * 8, bc = 2 * 16;
    Device dry(true, 0);
    Arena memory = Arena::dry_run(Memory::activations);
    const auto matrix = [&](Index columns) { return Matrix<float>(memory.tensor<float>(rows, columns)); };
    const SsdInput<float> in{matrix(inner), matrix(bc), matrix(bc), matrix(heads), {}};
    const SsdSaved<float> saved{memory.tensor<float>(rows, heads), memory.tensor<float>(batch, s.chunks(), inner * 16)};
    const auto y = memory.tensor<float>(rows, inner), last = memory.tensor<float>(batch, inner * 16);
    ssd<float>(dry, s, in, {}, {}, y, saved, last);
    ssd_backward<float>(dry, s, in, {}, saved, y, last, {matrix(inner), matrix(bc), matrix(bc), matrix(heads)}, {}, {});
    return dry.flops();
  };
  const double once = flops(1, 32, 4);
  EXPECT_EQ(flops(3, Index(1) << 24, 4), 3 * double(Index(1) << 19) * once);
  EXPECT_GT(flops(1, 32, 1 << 20), 1e5 * once);
}

// ---- Parts of the scan, as context-parallel ranks use them on parts of a sequence ----

namespace {

// Tokens [first, first + count) of every sequence.
Values slice_of_all_sequences(const Values& x, const SsdShape& s, Index first, Index count) {
  const Index width = Index(x.size()) / (s.batch * s.seq_length);
  Values part;
  for (Index b = 0; b < s.batch; ++b) {
    const Values one = extract(x, {b, first, count}, s.seq_length, width);
    part.insert(part.end(), one.begin(), one.end());
  }
  return part;
}
void write_back_to_all_sequences(const Values& part, const SsdShape& s, Index first, Index count, Values& x) {
  const Index width = Index(x.size()) / (s.batch * s.seq_length);
  for (Index b = 0; b < s.batch; ++b) put_back(extract(part, {b, 0, count}, count, width), {b, first, count}, s.seq_length, width, x);
}

const std::vector<Part> token_parts{&Arguments::x, &Arguments::b, &Arguments::c, &Arguments::dt_raw};
const std::vector<Part> weight_parts{&Arguments::dt_bias, &Arguments::a_log, &Arguments::d};

// One context-parallel rank: its tokens, the states of its chunks, and its own state, which the other ranks receive.
template <class T>
struct Rank {
  using A = Acc<T>;
  Index first;
  Call<T> call;
  Block<A> decay, total, local, dstates;
  Block<T> dy;

  Rank(const SsdShape& full, const Arguments& a, const Positions& positions, const Values& dy, Index first, Index count)
      : first(first), call(shape_of(full, count), part_of(a, full, first, count), positions_of_part(positions, full, first, count)),
        decay(full.batch * chunks(), full.num_heads), total(full.batch, full.num_heads), local(full.batch, call.state),
        dstates(full.batch * chunks(), call.state), dy(call.rows, full.num_heads * full.head_dim, slice_of_all_sequences(dy, full, first, count)) {}

  void chunk_states(Device& dev) {
    ssd_chunk_states<T>(dev, call.s, call.input(), call.weights(), call.saved(), call.last.tensor(), decays());
    ssd_local_state<A>(dev, call.s, decays(), call.saved().states, call.last.tensor(), total.tensor(), local.tensor());
  }
  void outputs(Device& dev, const Values& entering) {
    Block<A> initial(call.s.batch, call.state, entering);
    ssd_pass_states<A>(dev, call.s, decays(), initial.tensor(), call.saved().states, call.last.tensor());
    ssd_outputs<T>(dev, call.s, call.input(), call.weights(), call.saved(), call.y.tensor());
  }
  void outputs_backward(Device& dev) {
    ssd_outputs_backward<T>(dev, call.s, call.input(), call.weights(), call.saved(), dy.tensor(), gradients());
    ssd_local_state_backward<A>(dev, call.s, decays(), gradients(), local.tensor());
  }
  // An empty `leaving` means that the state after this rank's tokens has no gradient.
  Arguments chunk_states_backward(Device& dev, const Values& leaving) {
    const SsdShape& s = call.s;
    Block<A> dlast_block(s.batch, call.state, leaving);
    const Tensor2<A> dlast = leaving.empty() ? Tensor2<A>() : dlast_block.tensor();
    ssd_pass_states_backward<A>(dev, s, decays(), dlast, gradients());
    Block<T> dx(call.rows, s.num_heads * s.head_dim, {}, 2), db(call.rows, s.num_groups * s.state_size, {}, 3),
        dc(call.rows, s.num_groups * s.state_size, {}, 1), ddt(call.rows, s.num_heads, {}, 2);
    const Values zeros(s.num_heads, 0);
    Block<A> ddt_bias(1, s.num_heads, zeros), da_log(1, s.num_heads, zeros), dd(1, s.num_heads, zeros);
    ssd_chunk_states_backward<T>(dev, s, call.input(), call.weights(), call.saved(), dy.tensor(), gradients(), dlast,
                                 {dx.matrix(), db.matrix(), dc.matrix(), ddt.matrix()}, {ddt_bias.vector(), da_log.vector(), dd.vector()});
    Arguments g(s);
    g.x = dx.values(), g.b = db.values(), g.c = dc.values(), g.dt_raw = ddt.values();
    g.dt_bias = ddt_bias.values(), g.a_log = da_log.values(), g.d = dd.values();
    for (Index b = 0; b < s.batch; ++b)
      for (Index i = 0; i < call.state; ++i) g.initial[b * call.state + i] = double(gradients()(b, 0, i));
    return g;
  }

  // Passes an incoming state (forward) or state gradient (backward) through the tokens of this rank.
  Values through(Values x) const {
    const Values factor = total.values(), added = local.values();
    const Index of_head = call.state / call.s.num_heads;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = factor[i / of_head] * x[i] + added[i];
    return x;
  }

 private:
  Index chunks() const { return call.s.chunks(); }
  Tensor3<A> decays() { return decay.tensor(call.s.batch, chunks(), call.s.num_heads); }
  Tensor3<A> gradients() { return dstates.tensor(call.s.batch, chunks(), call.state); }
  static SsdShape shape_of(SsdShape s, Index count) {
    s.seq_length = count;
    return s;
  }
  static Arguments part_of(Arguments a, const SsdShape& s, Index first, Index count) {
    for (const Part part : token_parts) a.*part = slice_of_all_sequences(a.*part, s, first, count);
    return a;
  }
  static Positions positions_of_part(const Positions& all, const SsdShape& s, Index first, Index count) {
    Positions part;
    for (Index b = 0; b < s.batch && !all.empty(); ++b)
      part.insert(part.end(), all.begin() + b * s.seq_length + first, all.begin() + b * s.seq_length + first + count);
    return part;
  }
};

// Random sequences with an initial state, split in two at any token, with packed documents or none.
struct SplitSequence {
  SsdShape shape;
  Index split_at;
  Positions positions;
  bool last_asked;  // true if the state after the last token has a gradient

  explicit SplitSequence(std::uint64_t seed) {
    const Values draw = random_values(12, 2000 + seed);
    const auto among = [&](int i, Index least, Index most) { return least + Index((draw[i] + 1) / 2 * double(most - least + 1)); };
    const Index groups = among(0, 1, 3);
    shape = {among(1, 1, 3), among(2, 2, 90), groups * among(3, 1, 3), groups, among(4, 1, 9), among(5, 1, 9), among(6, 1, 40), 0, infinity};
    split_at = among(7, 1, shape.seq_length - 1);
    last_asked = draw[8] > -0.5;
    if (draw[9] < 0) return;
    const double longest = double(among(10, 2, shape.seq_length));
    const Values chance = random_values(shape.batch * shape.seq_length, 3000 + seed);
    for (std::size_t i = 0; i < chance.size(); ++i) {
      const bool sequence_begins = i % shape.seq_length == 0, document_begins = chance[i] > 1 - 2 / longest;
      positions.push_back(sequence_begins ? std::int32_t(among(11, 0, 2)) : document_begins ? 0 : positions.back() + 1);
    }
  }
  std::string name() const {
    return fmt::format("batch {}, length {} split at {}, heads {}, groups {}, width {}, state {}, chunk {}, {}", shape.batch, shape.seq_length,
                       split_at, shape.num_heads, shape.num_groups, shape.head_dim, shape.state_size, shape.chunk_size,
                       positions.empty() ? "no documents" : "documents");
  }
};

// Two ranks compute the chunk states of their halves independently and exchange their own states. Outputs and gradients
// must equal those of the full sequence.
template <class T>
void expect_halves_equal_full_sequence(const SplitSequence& c, double tolerance) {
  const SsdShape& s = c.shape;
  Arguments a(s);
  a.template round<T>();
  const Values dy = rounded<T>(random_dy(s)), dlast = c.last_asked ? rounded<Acc<T>>(random_dlast(s)) : Values();
  Device dev(false, 1 << 24);
  Call<T> full(s, a, c.positions);
  const Result expected = full.forward(dev);
  const Arguments g = full.backward(dev, dy, dlast, 0);

  Rank<T> early(s, a, c.positions, dy, 0, c.split_at), late(s, a, c.positions, dy, c.split_at, s.seq_length - c.split_at);
  early.chunk_states(dev), late.chunk_states(dev);
  const Values between = early.through(a.initial);
  early.outputs(dev, a.initial), late.outputs(dev, between);
  Values y = expected.y;
  for (Rank<T>* r : {&early, &late}) write_back_to_all_sequences(r->call.y.values(), s, r->first, r->call.s.seq_length, y);
  expect_near(y, expected.y, tolerance, "y");
  expect_near(between, early.call.last.values(), tolerance, "between");
  expect_near(late.call.last.values(), expected.last, tolerance, "last");

  early.outputs_backward(dev), late.outputs_backward(dev);
  const Values asked = late.through(c.last_asked ? dlast : Values(random_dlast(s).size(), 0));
  const Arguments g_late = late.chunk_states_backward(dev, dlast), g_early = early.chunk_states_backward(dev, asked);
  expect_near(g_late.initial, asked, tolerance, "gradient between");
  expect_near(g_early.initial, g.initial, tolerance, "initial");
  for (const Part part : token_parts) {
    Values joined = g.*part;
    write_back_to_all_sequences(g_early.*part, s, 0, c.split_at, joined),
        write_back_to_all_sequences(g_late.*part, s, c.split_at, s.seq_length - c.split_at, joined);
    expect_near(joined, g.*part, tolerance, "tokens");
  }
  for (const Part part : weight_parts) {
    Values sum = g_early.*part;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (g_late.*part)[i];
    expect_near(sum, g.*part, tolerance, "weights");
  }
}

}  // namespace

TEST(ssd, context_parallel_parts_equal_the_full_sequence) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const SplitSequence c(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, c.name()));
    expect_halves_equal_full_sequence<double>(c, 1e-12);
    expect_halves_equal_full_sequence<float>(c, 2e-5);
    expect_halves_equal_full_sequence<bf16>(c, 2e-2);
    if (HasFailure()) break;
  }
}

TEST(ssd, dry_run_counts_work_of_context_parallel_parts) {
  const SsdShape s{2, 75, 4, 2, 8, 16, 32, 0, infinity};
  const Arguments a(s);
  Device dev(false, 1 << 24), dry(true, 0);
  for (Device* d : {&dev, &dry}) {
    Rank<bf16> rank(s, a, positions_of({10, 1, 40, 75}, 2, 75), random_dy(s), 0, s.seq_length);
    rank.chunk_states(*d), rank.outputs(*d, a.initial), rank.outputs_backward(*d), rank.chunk_states_backward(*d, random_dlast(s));
  }
  EXPECT_EQ(dev.flops(), dry.flops());
  EXPECT_EQ(dev.scratch.high_water(), dry.scratch.high_water());
  ASSERT_EQ(dev.work().size(), dry.work().size());
  for (std::size_t i = 0; i < dev.work().size(); ++i) EXPECT_EQ(dev.work()[i].calls, dry.work()[i].calls) << dev.work()[i].kernel;
}

// As in generation: one token after the other, with only the state carried over.
template <class T>
void expect_steps_are_the_recurrence(const SsdShape& s, double tolerance) {
  Arguments a(s);
  a.round<T>();
  const Result expected = oracle(s, a);
  SsdShape one = s;
  one.seq_length = 1;
  Block<Acc<T>> state(s.batch, s.num_heads * s.head_dim * s.state_size, a.initial);
  const auto token = [&](const Values& all, Index t) {
    const Index width = Index(all.size()) / (s.batch * s.seq_length);
    Values of_t;
    for (Index b = 0; b < s.batch; ++b) of_t.insert(of_t.end(), &all[(b * s.seq_length + t) * width], &all[(b * s.seq_length + t) * width] + width);
    return of_t;
  };
  for (Index t = 0; t < s.seq_length; ++t) {
    Arguments of_t = a;
    of_t.x = token(a.x, t), of_t.b = token(a.b, t), of_t.c = token(a.c, t), of_t.dt_raw = token(a.dt_raw, t);
    Call<T> call(one, of_t);
    Device dry(true, 0);
    ssd_step<T>(dry, one, call.input(), call.weights(), state.tensor(), call.y.tensor());
    Device dev(false, dry.scratch.high_water());
    ssd_step<T>(dev, one, call.input(), call.weights(), state.tensor(), call.y.tensor());
    EXPECT_EQ(dev.flops(), dry.flops());
    expect_near(call.y.values(), token(expected.y, t), tolerance, "y");
  }
  expect_near(state.values(), expected.last, tolerance, "last");
}

TEST(ssd, single_token_steps_equal_the_recurrence) {
  std::vector<SsdShape> all = shapes();
  all.push_back({3, 4, 4, 2, 5, 37, 8, 0, infinity});  // 37 states are more than one vector of partial sums and leave a remainder
  for (const SsdShape& s : all) {
    expect_steps_are_the_recurrence<double>(s, 1e-13);
    expect_steps_are_the_recurrence<float>(s, 1e-5);
    expect_steps_are_the_recurrence<bf16>(s, 1e-2);
  }
}

// A single token costs one step of the recurrence, for any chunk length.
TEST(ssd, single_token_costs_one_recurrence_step) {
  const SsdShape s{1, 1, 4, 1, 16, 32, 128, 0, infinity};
  Device dev(false, 1 << 20);
  Call<float>(s, Arguments(s)).forward(dev);
  EXPECT_LT(dev.flops(), 7 * 4 * 16 * 32);
}

}  // namespace gyr::testing::ssd_suite
