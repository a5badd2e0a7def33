// SPDX-License-Identifier: BSD-3-Clause
// Gated delta rule (Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024): the recurrence of each
// head, computed chunk by chunk with GEMMs (WY representation, UT transform).
//   S_t = e^{g_t} S_{t-1} (I - beta_t k_t k_t') + beta_t v_t k_t',   y_t = S_t q_t / sqrt(K)
//   g = -exp(a_log) softplus(a + dt_bias),   beta = sigmoid(b),   q = q_raw / sqrt(|q_raw|^2 + eps), likewise k,   eps = 1e-6
//   B batch, T seq_length (rows b T + t), H num_heads, V value_dim, G num_groups of q and k (head h uses group h / (H/G)), K key_dim, Q chunk_size
// Within a chunk, with s_l = sum of g up to token l, in l's document, and S the state that enters the chunk:
//   u_l = beta_l (v_l - e^{s_l} S k_l - sum_{j<l} e^{s_l-s_j} (k_l . k_j) u_j)                  a unit lower triangular system (UT transform)
//   y_l = (e^{s_l} S q_l + sum_{j<=l} e^{s_l-s_j} (q_l . k_j) u_j) / sqrt(K),   S <- e^{s_Q} S + sum_j e^{s_Q-s_j} u_j k_j'
// The rows of S do not depend on each other, so that ranks may hold some of a head's value channels each.
#pragma once

#include <algorithm>

#include "kernels/device/documents.hpp"
#include "kernels/ops/gpu_plan.hpp"
#include "kernels/ops/ssd_math.hpp"

namespace gyr {

struct DeltaShape {
  Index batch, seq_length, num_heads, num_groups, value_dim, key_dim, chunk_size;
  GYR_FUNCTION Index rows() const { return batch * seq_length; }
  GYR_FUNCTION Index chunks() const { return (seq_length + chunk_size - 1) / chunk_size; }
  GYR_FUNCTION Index heads_per_group() const { return num_heads / num_groups; }
  GYR_FUNCTION Index state_elements() const { return num_heads * value_dim * key_dim; }  // state of one sequence; the state of a head is (V, K)
};

template <class T>
struct DeltaInput {
  Matrix<const T> q, k;      // queries and keys before normalisation, shape (B T, G K)
  Matrix<const T> v;         // values, shape (B T, H V)
  Matrix<const T> b, a;      // beta before the sigmoid; decay before bias and softplus, shape (B T, H)
  Documents documents = {};  // each document starts from a zero state
};
template <class A>
struct DeltaWeights {
  Tensor1<const A> dt_bias, a_log;  // bias of a, and log of the decay rate, shape (H) each
};
template <class T>
struct DeltaInputGradient {
  Matrix<T> q, k, v, b, a;  // gradients of the inputs, overwritten
};
template <class A>
struct DeltaWeightGradient {
  Tensor1<A> dt_bias, a_log;  // gradients of the weights, accumulated (+=), or empty
};

namespace delta {

template <class T>
void check(const DeltaShape& s, const DeltaInput<T>& in) {
  ensure(s.num_groups > 0 && s.num_heads % s.num_groups == 0 && s.chunk_size > 0 && s.seq_length > 0,
         "gated delta rule: {} heads must be a multiple of {} groups, and {} tokens and a chunk size of {} must be positive", s.num_heads,
         s.num_groups, s.seq_length, s.chunk_size);
  in.documents.check(s.rows());
  ensure(in.q.rows == s.rows() && in.k.rows == s.rows() && in.v.rows == s.rows() && in.a.rows == s.rows() && in.b.rows == s.rows() &&
             in.q.columns == s.num_groups * s.key_dim && in.k.columns == in.q.columns && in.v.columns == s.num_heads * s.value_dim &&
             in.a.columns == s.num_heads && in.b.columns == s.num_heads,
         "gated delta rule: q ({},{}), k ({},{}), v ({},{}), b ({},{}) and a ({},{}) do not fit {} tokens, {} heads of width {} and {} groups of "
         "width {}",
         in.q.rows, in.q.columns, in.k.rows, in.k.columns, in.v.rows, in.v.columns, in.b.rows, in.b.columns, in.a.rows, in.a.columns, s.rows(),
         s.num_heads, s.value_dim, s.num_groups, s.key_dim);
}
template <class State>
void check_state(const DeltaShape& s, const State& state, const char* name) {
  ensure(state.extent(0) == 0 || (Index(state.extent(0)) == s.batch && Index(state.extent(1)) == s.state_elements()),
         "gated delta rule: {} ({},{}) must have {} rows of {} elements", name, state.extent(0), state.extent(1), s.batch, s.state_elements());
}
template <class States>
void check_states(const DeltaShape& s, const States& states) {
  ensure(Index(states.extent(0)) == s.batch && Index(states.extent(1)) == s.chunks() && Index(states.extent(2)) == s.state_elements(),
         "gated delta rule: saved states ({},{},{}) must be ({},{},{})", states.extent(0), states.extent(1), states.extent(2), s.batch, s.chunks(),
         s.state_elements());
}

}  // namespace delta

// ---- Computation of one chunk, which all backends share. A Team computes it: a lane of a host, or a block of a GPU ----
//   rows(count, columns, f)  calls f(row) for each row          gemm(op, a, op, b, c, alpha, beta)  c = alpha op(a) op(b) + beta c
//   each(count, f)           calls f(column) for each column    once(count, f)                      calls f() in one thread
//   sum(count, f)            sum of f(column)                   strips(count, f)                    calls f(first, count) for strips of columns
//   leads()                  true in one thread of a row        rows, gemm, once and strips end with a barrier of the team

namespace delta {

inline constexpr double norm_eps = 1e-6;
inline constexpr Index solve_rows = 16;  // rows of the triangular system that are solved without a GEMM

// Arguments of a call. A dry run has no memory, so flags instead of pointers record which tensors are present.
template <class T>
struct Task {
  using A = Acc<T>;
  DeltaShape s;
  Matrix<const T> q, k, v, b, a;
  const A *dt_bias, *a_log;
  const std::int32_t* positions;             // position of each row in its document; null: not packed
  bool has_values = true, identity = false;  // false: v is zero; true: the initial state of each head is the unit matrix
  bool has_outputs = false, has_states = false, has_last = false, has_initial = false, has_inputs = false;
  const A* initial = nullptr;
  T* y = nullptr;
  A *states = nullptr, *last = nullptr;
  const T* dy = nullptr;
  Matrix<T> dq = {}, dk = {}, dv = {}, db = {}, da = {};  // present if has_inputs
  A* dstate = nullptr;                                    // gradient of the state that leaves the current chunk, (B, H V K); starts from `initial`
  double* partial = nullptr;                              // gradients of dt_bias and a_log of each sequence, (B, 2, H)
  A *d_dt_bias = nullptr, *d_a_log = nullptr;             // gradients of the weights, accumulated, or null

  Task(const DeltaShape& s, const DeltaInput<T>& in, const DeltaWeights<A>& w)
      : s(s), q(in.q), k(in.k), v(in.v), b(in.b), a(in.a), dt_bias(w.dt_bias.data()), a_log(w.a_log.data()),
        positions(in.documents.positions.data()) {}

  GYR_FUNCTION Index head_elements() const { return s.value_dim * s.key_dim; }
  GYR_FUNCTION Matrix<A> head_of(A* all, Index b, Index h) const {
    return {all + b * s.state_elements() + h * head_elements(), s.value_dim, s.key_dim, s.key_dim};
  }
  // State of head h that enters chunk c of sequence b. For c = chunks, or if states are not saved: the last state.
  GYR_FUNCTION Matrix<A> state(Index b, Index c, Index h) const {
    return has_states && c < s.chunks() ? head_of(states, b * s.chunks() + c, h) : head_of(last, b, h);
  }
  GYR_FUNCTION bool stores_leaving_state(Index c) const { return has_last || c + 1 < s.chunks(); }
};

// One chunk of one sequence: rows [first, first + length) of (B T, .).
struct Chunk {
  Index sequence, number, first, length;
  const std::int32_t* positions;

  template <class T>
  GYR_FUNCTION Chunk(const Task<T>& t, Index b, Index c)
      : sequence(b), number(c), first(b * t.s.seq_length + c * t.s.chunk_size), length(t.s.seq_length - c * t.s.chunk_size), positions(t.positions) {
    if (length > t.s.chunk_size) length = t.s.chunk_size;
  }
  GYR_FUNCTION Index reach(Index l) const { return positions ? Index(positions[first + l]) : Documents::unlimited; }
  // begin: first token of the chunk that belongs to the document of token l. carried: true if that document began
  // before the chunk.
  GYR_FUNCTION Index begin(Index l) const { return reach(l) < l ? l - reach(l) : 0; }
  GYR_FUNCTION bool carried(Index l) const { return reach(l) > l; }
};

// Scratch of one chunk of q tokens and one group of heads.
template <class A>
struct Work {
  double *sums, *dsums;                                     // s_l and its gradient, (q)
  A *beta, *dbeta, *from_start, *to_end, *norms, *through;  // beta_l, e^{s_l}, e^{s_Q-s_l}, (q); 1 / norms of k and q, (2q); (V)
  Matrix<A> kq, gram, dkq, dgram;                           // normalised k above q, (2q, K); kq k', (2q, q); gradients of both
  Matrix<A> decay, scores, dscores;                         // e^{s_l-s_j}, (q, q); k rows: L, q rows: A, (2q, q); gradients, k rows: terms of ds
  Matrix<A> carried, u, u_decayed, xdy, kds;                // kq S', (2q, V); u and e^{s_Q-s} u, (q, V); x above dy, (2q, V); k dS', (q, V)

  // Elements of A and of double for a shape, on any backend.
  static Index elements(const DeltaShape& s, bool backward) {
    const Index q = s.chunk_size < s.seq_length ? s.chunk_size : s.seq_length, K = s.key_dim, V = s.value_dim;
    return q * (2 * K + 2 * q + 6 + q + 2 * q + 4 * V) + V + (backward ? q * (2 * K + 2 * q + 2 * q + 3 * V) : 0);
  }
  static Index doubles(const DeltaShape& s) { return 2 * (s.chunk_size < s.seq_length ? s.chunk_size : s.seq_length); }

  // q: tokens of this chunk. wide: memory for doubles().
  GYR_FUNCTION Work(const DeltaShape& s, Index q, A* at, double* wide, bool backward) {
    const auto take = [&](Index count) {
      A* const begin = at;
      at += count;
      return begin;
    };
    const auto matrix = [&](Index rows, Index columns) { return Matrix<A>(take(rows * columns), rows, columns, columns); };
    const Index K = s.key_dim, V = s.value_dim;
    sums = wide, dsums = wide + q;
    kq = matrix(2 * q, K), gram = matrix(2 * q, q), decay = matrix(q, q), scores = matrix(2 * q, q);
    carried = matrix(2 * q, V), u = matrix(q, V), u_decayed = matrix(q, V);
    beta = take(q), dbeta = take(q), from_start = take(q), to_end = take(q), norms = take(2 * q), through = take(V);
    if (backward) dkq = matrix(2 * q, K), dgram = matrix(2 * q, q), dscores = matrix(2 * q, q), xdy = matrix(2 * q, V), kds = matrix(q, V);
  }
};

template <class A>
GYR_FUNCTION Matrix<A> part(const Matrix<A>& x, Index row, Index rows, Index column, Index columns) {
  return {x.data + row * x.stride + column, rows, columns, x.stride};
}
template <class A>
GYR_FUNCTION Matrix<A> upper(const Matrix<A>& x) {
  return part(x, 0, x.rows / 2, 0, x.columns);
}
template <class A>
GYR_FUNCTION Matrix<A> lower(const Matrix<A>& x) {
  return part(x, x.rows / 2, x.rows / 2, 0, x.columns);
}

// Normalises k and q of group g, and computes their dot products with k.
template <class Team, class T>
GYR_FUNCTION void load_group(const Team& team, const Task<T>& t, const Chunk& c, Index g, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, K = t.s.key_dim;
  team.rows(2 * q, 4 * K, [=](Index i) {
    const T* const from = (i < q ? t.k.row(c.first + i) : t.q.row(c.first + i - q)) + g * K;
    A* const to = w.kq.row(i);
    const A squares = team.template sum<A>(K, [=](Index e) { return A(from[e]) * A(from[e]); });
    const A factor = A(1) / std::sqrt(squares + A(norm_eps));
    if (team.leads()) w.norms[i] = factor;
    team.each(K, [=](Index e) { to[e] = A(from[e]) * factor; });
  });
  team.gemm(MatrixOp::none, w.kq, MatrixOp::transpose, upper(w.kq), w.gram, 1, 0);
}

// beta and decays of head h, and the matrices L and A of the chunk.
template <class Team, class T>
GYR_FUNCTION void load_head(const Team& team, const Task<T>& t, const Chunk& c, Index h, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length;
  team.once(20 * q, [=] {
    const double rate = -std::exp(double(t.a_log[h]));
    double sum = 0;
    for (Index l = 0; l < q; ++l) {
      if (c.reach(l) == 0) sum = 0;
      sum += rate * double(gyr::scan::softplus(A(t.a(c.first + l, h)) + t.dt_bias[h]));
      w.sums[l] = sum;
      w.beta[l] = gyr::scan::softplus_slope(A(t.b(c.first + l, h)));  // the slope of softplus is the sigmoid
      w.from_start[l] = c.carried(l) ? A(std::exp(sum)) : A(0);
    }
    for (Index l = 0; l < q; ++l) w.to_end[l] = l >= c.begin(q - 1) ? A(std::exp(sum - w.sums[l])) : A(0);
  });
  const A scale = A(1 / std::sqrt(double(t.s.key_dim)));
  team.rows(q, 6 * q, [=](Index l) {
    const Index begin = c.begin(l);
    const A beta = w.beta[l];
    const double at = w.sums[l];
    A *const decay = w.decay.row(l), *const ks = w.scores.row(l), *const qs = w.scores.row(q + l);
    const A *const kk = w.gram.row(l), *const qk = w.gram.row(q + l);
    team.each(q, [=](Index j) {
      const A d = j >= begin && j <= l ? fast_exp(A(at - w.sums[j])) : A(0);
      decay[j] = d;
      ks[j] = j < l ? beta * d * kk[j] : A(0);
      qs[j] = scale * d * qk[j];
    });
  });
}

// u = (I + L)^-1 diag(beta) (v - e^s k S'), block by block of rows.
template <class Team, class T>
GYR_FUNCTION void solve(const Team& team, const Task<T>& t, const Chunk& c, Index h, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, V = t.s.value_dim;
  team.rows(q, 3 * V, [=](Index l) {
    const T* const v = t.v.row(c.first + l) + h * V;
    const A *const ks = w.carried.row(l), beta = w.beta[l], start = w.from_start[l];
    A* const u = w.u.row(l);
    if (t.has_values) team.each(V, [=](Index e) { u[e] = beta * (A(v[e]) - start * ks[e]); });
    else team.each(V, [=](Index e) { u[e] = -beta * start * ks[e]; });
  });
  for (Index first = 0; first < q; first += solve_rows) {
    const Index count = q - first < solve_rows ? q - first : solve_rows;
    if (first > 0)
      team.gemm(MatrixOp::none, part(w.scores, first, count, 0, first), MatrixOp::none, part(w.u, 0, first, 0, V), part(w.u, first, count, 0, V), -1,
                1);
    team.strips(V, double(count * count), [=](Index column, Index columns) {
      for (Index l = first + 1; l < first + count; ++l)
        for (Index j = first; j < l; ++j) {
          const A factor = w.scores(l, j);
          A *const to = w.u.row(l) + column, *const from = w.u.row(j) + column;
          for (Index e = 0; e < columns; ++e) to[e] -= factor * from[e];
        }
    });
  }
}

// u_decayed = e^{s_Q-s} u
template <class Team, class A>
GYR_FUNCTION void decay_to_end(const Team& team, Index q, const Work<A>& w) {
  team.rows(q, w.u.columns, [=](Index l) {
    const A *const u = w.u.row(l), end = w.to_end[l];
    A* const to = w.u_decayed.row(l);
    team.each(w.u.columns, [=](Index e) { to[e] = end * u[e]; });
  });
}

// to = factor from, with the factor in the memory of the team
template <class Team, class A>
GYR_FUNCTION void scale_state(const Team& team, const Matrix<A>& from, const A* at, const Matrix<A>& to) {
  team.rows(from.rows, from.columns, [=](Index r) {
    const A* const in = from.row(r);
    const A factor = *at;
    A* const out = to.row(r);
    team.each(from.columns, [=](Index e) { out[e] = factor == A(0) ? A(0) : factor * in[e]; });
  });
}

// Outputs of head h in a chunk, if the call has them, and the state that leaves the chunk.
template <class Team, class T>
GYR_FUNCTION void head_forward(const Team& team, const Task<T>& t, const Chunk& c, Index h, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, V = t.s.value_dim;
  const Matrix<A> entering = t.state(c.sequence, c.number, h);
  load_head(team, t, c, h, w);
  team.gemm(MatrixOp::none, w.kq, MatrixOp::transpose, entering, w.carried, 1, 0);
  solve(team, t, c, h, w);
  if (t.has_outputs) {
    const A scale = A(1 / std::sqrt(double(t.s.key_dim)));
    const Matrix<A> out = lower(w.carried);
    team.rows(q, V, [=](Index l) {
      const A factor = scale * w.from_start[l];
      A* const o = out.row(l);
      team.each(V, [=](Index e) { o[e] *= factor; });
    });
    team.gemm(MatrixOp::none, lower(w.scores), MatrixOp::none, w.u, out, 1, 1);
    team.rows(q, 0, [=](Index l) {
      T* const y = t.y + (c.first + l) * t.s.num_heads * V + h * V;
      const A* const o = out.row(l);
      team.each(V, [=](Index e) { y[e] = T(o[e]); });
    });
  }
  if (!t.stores_leaving_state(c.number)) return;
  const Matrix<A> leaving = t.state(c.sequence, c.number + 1, h);
  decay_to_end(team, q, w);
  scale_state(team, entering, w.from_start + q - 1, leaving);
  team.gemm(MatrixOp::transpose, w.u_decayed, MatrixOp::none, upper(w.kq), leaving, 1, 1);
}

// From dS of the state that leaves the chunk and dy:  du = A' dy + e^{s_Q-s} k dS',   x = (I + L)^-T du,   with x in xdy.
// dsums gets the terms of e^{s_Q-s}, and `through` the dot products of S and dS.
template <class Team, class T>
GYR_FUNCTION void solve_backward(const Team& team, const Task<T>& t, const Chunk& c, Index h, const Matrix<Acc<T>>& state,
                                 const Matrix<Acc<T>>& dstate, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, V = t.s.value_dim, K = t.s.key_dim;
  const Matrix<A> x = upper(w.xdy), dy = lower(w.xdy);
  team.gemm(MatrixOp::none, upper(w.kq), MatrixOp::transpose, dstate, w.kds, 1, 0);
  team.rows(q, 5 * V, [=](Index l) {
    const T* const from = t.dy + (c.first + l) * t.s.num_heads * V + h * V;
    A *const to = dy.row(l), *const xs = x.row(l), *const u = w.u.row(l), *const kds = w.kds.row(l);
    const A end = w.to_end[l];
    const A dot = team.template sum<A>(V, [=](Index e) { return u[e] * kds[e]; });
    if (team.leads()) w.dsums[l] = -double(end * dot);
    team.each(V, [=](Index e) { to[e] = A(from[e]), xs[e] = end * kds[e]; });
  });
  team.rows(V, 2 * K, [=](Index r) {
    const A *const s = state.row(r), *const ds = dstate.row(r);
    const A dot = team.template sum<A>(K, [=](Index e) { return s[e] * ds[e]; });
    if (team.leads()) w.through[r] = dot;
  });
  team.gemm(MatrixOp::transpose, lower(w.scores), MatrixOp::none, dy, x, 1, 1);
  for (Index first = (q - 1) / solve_rows * solve_rows; first >= 0; first -= solve_rows) {
    const Index count = q - first < solve_rows ? q - first : solve_rows, next = first + count;
    if (next < q)
      team.gemm(MatrixOp::transpose, part(w.scores, next, q - next, first, count), MatrixOp::none, part(x, next, q - next, 0, V),
                part(x, first, count, 0, V), -1, 1);
    team.strips(V, double(count * count), [=](Index column, Index columns) {
      for (Index l = next - 2; l >= first; --l)
        for (Index j = l + 1; j < next; ++j) {
          const A factor = w.scores(j, l);
          A *const to = x.row(l) + column, *const from = x.row(j) + column;
          for (Index e = 0; e < columns; ++e) to[e] -= factor * from[e];
        }
    });
  }
}

// Gradients of the values, and of beta through beta (v - e^s k S').
template <class Team, class T>
GYR_FUNCTION void values_backward(const Team& team, const Task<T>& t, const Chunk& c, Index h, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index V = t.s.value_dim;
  team.rows(c.length, 4 * V, [=](Index l) {
    const T* const v = t.v.row(c.first + l) + h * V;
    T* const dv = t.dv.row(c.first + l) + h * V;
    const A *const x = w.xdy.row(l), *const ks = w.carried.row(l), beta = w.beta[l], start = w.from_start[l];
    const A dot = team.template sum<A>(V, [=](Index e) { return x[e] * (A(v[e]) - start * ks[e]); });
    if (team.leads()) w.dbeta[l] = dot;
    team.each(V, [=](Index e) { dv[e] = T(beta * x[e]); });
  });
}

// Through the matrices L and A: adds to dgram and dbeta, and to dsums the terms of e^{s_l-s_j}.
template <class Team, class T>
GYR_FUNCTION void scores_backward(const Team& team, const Task<T>& t, const Chunk& c, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length;
  const A scale = A(1 / std::sqrt(double(t.s.key_dim)));
  team.gemm(MatrixOp::none, w.xdy, MatrixOp::transpose, w.u, w.dscores, 1, 0);
  team.rows(q, 14 * q, [=](Index l) {
    const A beta = w.beta[l];
    const A *const decay = w.decay.row(l), *const kk = w.gram.row(l), *const qs = w.scores.row(q + l);
    A *const dks = w.dscores.row(l), *const dqs = w.dscores.row(q + l), *const dkk = w.dgram.row(l), *const dqk = w.dgram.row(q + l);
    const A dot = team.template sum<A>(l, [=](Index j) { return -dks[j] * decay[j] * kk[j]; });
    team.each(q, [=](Index j) {
      const A below = j < l ? -dks[j] * decay[j] : A(0), within = j <= l ? dqs[j] : A(0);
      dkk[j] += beta * below;
      dqk[j] += scale * decay[j] * within;
      dks[j] = below * beta * kk[j] + within * qs[j];  // the terms of ds
    });
    const double row = team.template sum<double>(l + 1, [=](Index j) { return double(dks[j]); });
    if (team.leads()) w.dbeta[l] += dot, w.dsums[l] += row;
  });
  team.strips(q, 2.0 * q, [=](Index column, Index columns) {
    for (Index j = column; j < column + columns; ++j)
      for (Index l = j; l < q; ++l) w.dsums[j] -= double(w.dscores(l, j));
  });
}

// Through k S' and q S': replaces `carried` by its gradient, and adds to dsums the terms of e^{s_l}.
template <class Team, class T>
GYR_FUNCTION void carried_backward(const Team& team, const Task<T>& t, const Chunk& c, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, V = t.s.value_dim;
  const A scale = A(1 / std::sqrt(double(t.s.key_dim)));
  team.rows(q, 8 * V, [=](Index l) {
    const A of_k = -w.from_start[l] * w.beta[l], of_q = w.from_start[l] * scale;
    A *const ks = w.carried.row(l), *const qs = w.carried.row(q + l);
    const A *const x = w.xdy.row(l), *const dy = w.xdy.row(q + l);
    const A dot = team.template sum<A>(V, [=](Index e) { return of_k * x[e] * ks[e] + of_q * dy[e] * qs[e]; });
    if (team.leads()) w.dsums[l] += double(dot);
    team.each(V, [=](Index e) { ks[e] = of_k * x[e], qs[e] = of_q * dy[e]; });
  });
}

// From the gradients of s and beta to those of a, b, a_log and dt_bias.  dg_l = sum of ds over the later tokens of its
// document.
template <class Team, class T>
GYR_FUNCTION void decays_backward(const Team& team, const Task<T>& t, const Chunk& c, Index h, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, V = t.s.value_dim;
  team.once(20 * q, [=] {
    const double rate = -std::exp(double(t.a_log[h]));
    double at_end = 0, d_bias = 0, d_rate = 0, later = 0;
    for (Index r = 0; r < V; ++r) at_end += double(w.through[r]);
    at_end *= double(w.from_start[q - 1]);
    for (Index l = q - 1; l >= 0; --l) {
      if (l + 1 < q && c.reach(l + 1) == 0) later = 0;
      later += w.dsums[l] + (l == q - 1 ? at_end : 0.0);
      const A raw = A(t.a(c.first + l, h)) + t.dt_bias[h], beta = w.beta[l];
      const double dg = c.reach(l) == 0 ? 0.0 : later, da = dg * rate * double(gyr::scan::softplus_slope(raw));
      t.da(c.first + l, h) = T(A(da));
      t.db(c.first + l, h) = T(w.dbeta[l] * beta * (A(1) - beta));
      d_bias += da, d_rate += dg * rate * double(gyr::scan::softplus(raw));
    }
    t.partial[(c.sequence * 2) * t.s.num_heads + h] += d_bias;
    t.partial[(c.sequence * 2 + 1) * t.s.num_heads + h] += d_rate;
  });
}

// Gradients of head h in a chunk, and from the gradient of the leaving state to that of the entering state, in place.
template <class Team, class T>
GYR_FUNCTION void head_backward(const Team& team, const Task<T>& t, const Chunk& c, Index h, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, K = t.s.key_dim;
  const Matrix<A> state = t.state(c.sequence, c.number, h), dstate = t.head_of(t.dstate, c.sequence, h);
  load_head(team, t, c, h, w);
  team.gemm(MatrixOp::none, w.kq, MatrixOp::transpose, state, w.carried, 1, 0);
  solve(team, t, c, h, w);
  solve_backward(team, t, c, h, state, dstate, w);
  if (t.has_inputs) {
    team.once(q, [=] {
      double sum = 0;  // s_Q gets the opposite of the terms of e^{s_Q-s_l}
      for (Index l = 0; l + 1 < q; ++l) sum -= w.dsums[l];
      w.dsums[q - 1] = sum;
    });
    values_backward(team, t, c, h, w);
    scores_backward(team, t, c, w);
  }
  carried_backward(team, t, c, w);
  if (t.has_inputs) {
    decays_backward(team, t, c, h, w);
    decay_to_end(team, q, w);
    team.gemm(MatrixOp::none, w.carried, MatrixOp::none, state, w.dkq, 1, 1);
    team.gemm(MatrixOp::none, w.u_decayed, MatrixOp::none, dstate, part(w.dkq, 0, q, 0, K), 1, 1);
  }
  scale_state(team, dstate, w.from_start + q - 1, dstate);
  team.gemm(MatrixOp::transpose, w.carried, MatrixOp::none, w.kq, dstate, 1, 1);
}

// Initial state, or gradient of the last state, of the heads of a group.
template <class Team, class T>
GYR_FUNCTION void start(const Team& team, const Task<T>& t, const Matrix<Acc<T>>& state, Index b, Index h) {
  using A = Acc<T>;
  const A* const initial = t.initial + (b * t.s.num_heads + h) * t.head_elements();
  team.rows(state.rows, 0, [=](Index r) {
    A* const to = state.row(r);
    if (t.has_initial) team.each(state.columns, [=](Index e) { to[e] = initial[r * state.columns + e]; });
    else team.each(state.columns, [=](Index e) { to[e] = A(t.identity && e == r ? 1 : 0); });
  });
}

// Group g of sequence b, from the first chunk to the last. memory: Work<A>::elements; wide: Work<A>::doubles
template <class Team, class T>
GYR_FUNCTION void group_forward(const Team& team, const Task<T>& t, Index b, Index g, Acc<T>* memory, double* wide) {
  const Index heads = t.s.heads_per_group(), first = g * heads;
  for (Index h = first; h < first + heads; ++h) start(team, t, t.state(b, 0, h), b, h);
  const auto through = [&](Index number) {
    const Chunk c(t, b, number);
    const Work<Acc<T>> w(t.s, c.length, memory, wide, false);
    load_group(team, t, c, g, w);
    team.repeat(heads, [&](Index r) { head_forward(team, t, c, first + r, w); });
  };
  team.repeat(t.s.chunks() - 1, through);
  through(t.s.chunks() - 1);
}

// Through the normalisation of k and q:  dx = (dn - n (n . dn)) / |x|
template <class Team, class T>
GYR_FUNCTION void norms_backward(const Team& team, const Task<T>& t, const Chunk& c, Index g, const Work<Acc<T>>& w) {
  using A = Acc<T>;
  const Index q = c.length, K = t.s.key_dim;
  team.gemm(MatrixOp::none, w.dgram, MatrixOp::none, upper(w.kq), w.dkq, 1, 1);
  team.gemm(MatrixOp::transpose, w.dgram, MatrixOp::none, w.kq, part(w.dkq, 0, q, 0, K), 1, 1);
  team.rows(2 * q, 6 * K, [=](Index i) {
    const A *const n = w.kq.row(i), *const dn = w.dkq.row(i), factor = w.norms[i];
    T* const to = (i < q ? t.dk.row(c.first + i) : t.dq.row(c.first + i - q)) + g * K;
    const A dot = team.template sum<A>(K, [=](Index e) { return n[e] * dn[e]; });
    team.each(K, [=](Index e) { to[e] = T(factor * (dn[e] - n[e] * dot)); });
  });
}

// Group g of sequence b, from the last chunk to the first.
template <class Team, class T>
GYR_FUNCTION void group_backward(const Team& team, const Task<T>& t, Index b, Index g, Acc<T>* memory, double* wide) {
  using A = Acc<T>;
  const Index heads = t.s.heads_per_group(), first = g * heads, last = t.s.chunks() - 1;
  for (Index h = first; h < first + heads; ++h) start(team, t, t.head_of(t.dstate, b, h), b, h);
  team.once(heads, [=] {
    for (Index h = first; h < first + heads; ++h) t.partial[2 * b * t.s.num_heads + h] = t.partial[(2 * b + 1) * t.s.num_heads + h] = 0;
  });
  const auto through = [&](Index number) {
    const Chunk c(t, b, number);
    const Work<A> w(t.s, c.length, memory, wide, true);
    load_group(team, t, c, g, w);
    if (t.has_inputs)
      team.rows(2 * c.length, 0, [=](Index i) {
        A *const dkq = w.dkq.row(i), *const dgram = w.dgram.row(i);
        team.each(w.dkq.columns, [=](Index e) { dkq[e] = 0; });
        team.each(w.dgram.columns, [=](Index e) { dgram[e] = 0; });
      });
    team.repeat(heads, [&](Index r) { head_backward(team, t, c, first + r, w); });
    if (t.has_inputs) norms_backward(team, t, c, g, w);
  };
  through(last);
  team.repeat(last, [&](Index i) { through(last - 1 - i); });
}

// Adds the gradients of the weights of head h, summed over the sequences.
template <class T>
GYR_FUNCTION void add_weight_gradients(const Task<T>& t, Index h) {
  double bias = 0, rate = 0;
  for (Index b = 0; b < t.s.batch; ++b) bias += t.partial[2 * b * t.s.num_heads + h], rate += t.partial[(2 * b + 1) * t.s.num_heads + h];
  if (t.d_dt_bias) t.d_dt_bias[h] += Acc<T>(bias);
  if (t.d_a_log) t.d_a_log[h] += Acc<T>(rate);
}

// Scratch of a call on a GPU, where each group of each sequence has its own.
template <class A>
struct GroupScratch {
  Tensor2<A> memory;
  Tensor2<double> wide;
  GroupScratch(Arena& scratch, const DeltaShape& s, bool backward)
      : memory(scratch.tensor<A>(s.batch * s.num_groups, Work<A>::elements(s, backward))),
        wide(scratch.tensor<double>(s.batch * s.num_groups, Work<A>::doubles(s))) {}
};

// FLOPs of the chunks, with every GEMM counted in full.
inline double flops_of(const DeltaShape& s, bool backward) {
  const double q = double(std::min(s.chunk_size, s.seq_length)), rows = double(s.rows()), K = double(s.key_dim), V = double(s.value_dim);
  const double of_group = 4 * q * K, of_head = 4 * K * V + q * V + 2 * q * V + 2 * K * V;
  const double group_backward = 12 * q * K, head_backward = 4 * K * V + 2 * K * V + 7 * q * V + 10 * K * V;
  return rows * double(s.num_groups) * (of_group + (backward ? group_backward : 0)) +
         rows * double(s.num_heads) * (of_head + (backward ? head_backward : 0));
}

}  // namespace delta

// Defined by each backend, called with checked arguments: all groups of all sequences. Both record their own launches,
// which differ between backends, and allocate scratch. They do both on a dry-run device as well.
namespace backend {
template <class T>
void gated_delta(Device&, const delta::Task<T>&);
template <class T>
void gated_delta_backward(Device&, const delta::Task<T>&);
}  // namespace backend

namespace delta {
// Forward with the scratch that the call takes on the planned device.
template <class T>
void run(Device& dev, const Task<T>& t) {
  const Workspace workspace(dev.scratch, "gated_delta");
  planned_for_gpu(
      dev, [&](Arena& scratch) { GroupScratch<Acc<T>>(scratch, t.s, false); }, [&](Device& device) { backend::gated_delta<T>(device, t); });
}
}  // namespace delta

// initial: state before the first token, (B, H V K), zeros if empty; it affects only a document that began before the
// sequence. states: state that enters each chunk, saved for backward, (B, chunks, H V K). last: state after the last
// token, from the tokens of its document only; not written if empty; may be initial's memory. y may be empty. Decoding
// saves no states: they may be empty if there is `last`.
template <class T>
void gated_delta(Device& dev, const DeltaShape& s, const DeltaInput<T>& in, const DeltaWeights<Acc<T>>& w, Tensor2<const Acc<T>> initial,
                 Tensor2<T> y /*(B T, H V)*/, Tensor3<Acc<T>> states, Tensor2<Acc<T>> last) {
  delta::check(s, in);
  if (states.extent(0) > 0) delta::check_states(s, states);
  else ensure(last.extent(0) > 0, "gated delta rule: a call must save the states or return the last one");
  delta::check_state(s, initial, "the initial state");
  delta::check_state(s, last, "the last state");
  delta::Task<T> t(s, in, w);
  t.initial = initial.data(), t.y = y.data(), t.states = states.data(), t.last = last.data();
  t.has_initial = initial.extent(0) > 0, t.has_outputs = y.extent(0) > 0, t.has_states = states.extent(0) > 0, t.has_last = last.extent(0) > 0;
  delta::run(dev, t);
}

// Effect of all tokens of each sequence on its state:  last = initial transition + local, head by head.
template <class T>
void gated_delta_block(Device& dev, const DeltaShape& s, const DeltaInput<T>& in, const DeltaWeights<Acc<T>>& w,
                       Tensor2<Acc<T>> transition /*(B, H K K)*/, Tensor2<Acc<T>> local /*(B, H V K)*/) {
  gated_delta<T>(dev, s, in, w, {}, {}, {}, local);
  DeltaShape square = s;  // the rows of the unit matrix are initial states, and all values are zero
  square.value_dim = s.key_dim;
  delta::check_state(square, transition, "the transition");
  delta::Task<T> t(square, in, w);
  t.last = transition.data(), t.has_last = t.identity = true, t.has_values = false;
  delta::run(dev, t);
}

// Backward, chunk by chunk from the end. dlast: gradient of the last state, zeros if empty. dinitial: gradient of the
// initial state, not written if empty. If the input gradients are empty, only dinitial is computed.
template <class T>
void gated_delta_backward(Device& dev, const DeltaShape& s, const DeltaInput<T>& in, const DeltaWeights<Acc<T>>& w, Tensor3<const Acc<T>> states,
                          Tensor2<const T> dy, Tensor2<const Acc<T>> dlast, const DeltaInputGradient<T>& d_in, const DeltaWeightGradient<Acc<T>>& dw,
                          Tensor2<Acc<T>> dinitial) {
  using A = Acc<T>;
  delta::check(s, in);
  delta::check_states(s, states);
  delta::check_state(s, dlast, "the gradient of the last state");
  delta::check_state(s, dinitial, "the gradient of the initial state");
  const Workspace workspace(dev.scratch, "gated_delta_backward");
  delta::Task<T> t(s, in, w);
  t.states = const_cast<A*>(states.data()), t.dy = dy.data(), t.initial = dlast.data();
  t.has_states = true, t.has_initial = dlast.extent(0) > 0, t.has_inputs = d_in.q.rows > 0;
  t.dq = d_in.q, t.dk = d_in.k, t.dv = d_in.v, t.db = d_in.b, t.da = d_in.a;
  t.d_dt_bias = dw.dt_bias.data(), t.d_a_log = dw.a_log.data();
  t.dstate = dinitial.extent(0) > 0 ? dinitial.data() : dev.scratch.tensor<A>(s.batch, s.state_elements()).data();
  t.partial = dev.scratch.tensor<double>(s.batch, 2 * s.num_heads).data();
  planned_for_gpu(
      dev, [&](Arena& scratch) { delta::GroupScratch<A>(scratch, s, true); }, [&](Device& device) { backend::gated_delta_backward<T>(device, t); });
}

// Explicit instantiations in the namespace backend, as in kernels/base/instances.hpp.
#define GYR_GATED_DELTA(T)                                      \
  template void gated_delta<T>(Device&, const delta::Task<T>&); \
  template void gated_delta_backward<T>(Device&, const delta::Task<T>&);

}  // namespace gyr
