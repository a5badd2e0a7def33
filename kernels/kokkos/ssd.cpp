// SPDX-License-Identifier: BSD-3-Clause
// A chunk of Q tokens as matrix products; R = H/G heads share the B and C of a group, and what they share is one
// product for all of them.
//   s_l = sum_{k<=l} A dt_k within the chunk and l's document, U = dt x, G = C B', W = G exp(s_l - s_s) for s <= l of one document
//   Packed documents: what would cross the beginning of one decays to an exact zero, so backward needs no case of its own.
#include "kernels/ssd.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/gemm.hpp"
#include "kernels/kokkos/operand.hpp"
#include "kernels/math.hpp"

namespace gyr {

namespace {

template <class A>
void product(Device& dev, Op op_a, Matrix<const A> a, Op op_b, Matrix<const A> b, Matrix<A> c, double alpha = 1,
             double beta = 0) {
  gemm<A>(dev, op_a, a, op_b, b, c, alpha, beta, "ssd_gemm");
}

// log(1 + e^v), linear beyond 20 as PyTorch has it
template <class A>
KOKKOS_INLINE_FUNCTION A softplus(A v) {
  return v > A(20) ? v : std::log1p(std::exp(v));
}
template <class A>
KOKKOS_INLINE_FUNCTION A softplus_slope(A v) {
  return v > A(20) ? A(1) : A(1) / (A(1) + std::exp(-v));
}

// One chunk of one sequence: rows [first, first + length) of (B T, .).
struct Chunk {
  Index sequence, number, first, length;
  Documents documents;

  // The first token of the chunk that belongs to token l's document, and whether that began before the chunk.
  KOKKOS_INLINE_FUNCTION Index begin(Index l) const { return after(l, documents.reach(first + l)); }
  KOKKOS_INLINE_FUNCTION bool carried(Index l) const { return documents.reach(first + l) > l; }
  Index planned_begin(Index l) const { return after(l, documents.planned_reach(first + l)); }
  KOKKOS_INLINE_FUNCTION static Index after(Index l, Index reach) { return reach < l ? l - reach : 0; }
};

// The tokens of a chunk against those before them, (q,q), in bands of rows: body(row, rows, column, columns) has all columns that its rows
// may see. Products over bands leave out most of the zeros above the diagonal and before documents.
template <class Body>
void for_bands(const Chunk& k, const Body& body) {
  constexpr Index band = 64;
  for (Index row = 0; row < k.length; row += band) {
    const Index rows = std::min(band, k.length - row), column = k.planned_begin(row);
    body(row, rows, column, row + rows - column);
  }
}

// Extents used all over, and the blocks that belong to a chunk and a group.
struct Layout {
  Index batch, length, heads, groups, width, state, chunk;
  Index per_group, channels, chunks;  // R heads and R P channels of a group
  Documents documents;

  Layout(const SsdShape& s, const Documents& packed)
      : batch(s.batch),
        length(s.length),
        heads(s.heads),
        groups(s.groups),
        width(s.width),
        state(s.state),
        chunk(std::min(s.chunk, s.length)),
        per_group(s.heads / s.groups),
        channels(per_group * s.width),
        chunks(s.chunks()),
        documents(packed) {}

  Chunk at(Index b, Index c) const { return {b, c, b * length + c * chunk, std::min(chunk, length - c * chunk), documents}; }
  template <class X>
  Matrix<X> of_heads(Matrix<X> x, const Chunk& k, Index g) const {
    return x.block(k.first, k.length, g * channels, channels);
  }
  template <class X>
  Matrix<X> of_group(Matrix<X> x, const Chunk& k, Index g) const {
    return x.block(k.first, k.length, g * state, state);
  }
  template <class X>
  Matrix<X> of_head(Matrix<X> x, Index r) const {
    return columns(x, r * width, width);
  }
  // The states of a group's heads stacked, (R P, N), inside (H P N).
  template <class X>
  Matrix<X> states(X* all, Index g) const {
    return {all + g * channels * state, channels, state, state};
  }
};

template <class T>
void check(const SsdShape& s, const SsdInput<T>& in, const SsdSaved<Acc<T>>& saved) {
  ensure(s.groups > 0 && s.heads % s.groups == 0 && s.chunk > 0 && s.length > 0,
         "scan of {} heads in {} groups, {} tokens in chunks of {}", s.heads, s.groups, s.length, s.chunk);
  const Index rows = s.batch * s.length;
  in.documents.check(rows);
  ensure(
      in.x.rows == rows && in.b.rows == rows && in.c.rows == rows && in.dt_raw.rows == rows &&
          in.x.columns == s.heads * s.width && in.b.columns == s.groups * s.state && in.c.columns == in.b.columns &&
          in.dt_raw.columns == s.heads,
      "scan of x ({},{}), b ({},{}), c ({},{}), dt ({},{}) for {} tokens, {} heads of width {}, {} groups of state {}",
      in.x.rows, in.x.columns, in.b.rows, in.b.columns, in.c.rows, in.c.columns, in.dt_raw.rows, in.dt_raw.columns,
      rows, s.heads, s.width, s.groups, s.state);
  ensure(Index(saved.dt.extent(0)) == rows && Index(saved.states.extent(0)) == s.batch &&
             Index(saved.states.extent(1)) == s.chunks() &&
             Index(saved.states.extent(2)) == s.heads * s.width * s.state,
         "scan saves dt of {} rows and states ({},{},{})", saved.dt.extent(0), saved.states.extent(0),
         saved.states.extent(1), saved.states.extent(2));
}

// a - b of sums that are kept as two numbers each: s = sum + 2^-24 rest. Neighbours in a long chunk have sums far greater than their
// difference, and in float its digits would be those that the sums have not. The multiply-add keeps the compiler, which may reorder
// sums, from adding a rest to its own sum. Double has digits to spare.
constexpr double rest_unit = 0x1p-24;
KOKKOS_INLINE_FUNCTION float difference(float a, float a_rest, float b, float b_rest) {
  return std::fma(a_rest - b_rest, float(rest_unit), a - b);
}
KOKKOS_INLINE_FUNCTION double difference(double a, double, double b, double) { return a - b; }

// Decay between places of a chunk, (H, Q): s_l = sum(h,l) + 2^-24 rest(h,l), from_start = exp(s_l), to_end = exp(s_Q - s_l); zero where a
// document begins in between.
template <class A>
struct Decay {
  Tensor2<A> sum, rest, from_start, to_end;

  Decay(Device& dev, const Layout& n)
      : sum(dev.scratch.tensor<A>(n.heads, n.chunk)),
        rest(dev.scratch.tensor<A>(n.heads, n.chunk)),
        from_start(dev.scratch.tensor<A>(n.heads, n.chunk)),
        to_end(dev.scratch.tensor<A>(n.heads, n.chunk)) {}

  void fill(Device& dev, const Chunk& k, Tensor2<const A> dt, Tensor1<const A> a_log) const {
    const auto to = *this;
    for_rows(
        dev, "ssd_decay", sum.extent(0), KOKKOS_LAMBDA(const Index h) {
          const double rate = -std::exp(double(a_log(h)));
          double s = 0;
          for (Index l = 0; l < k.length; ++l) {
            // One rounding, spelled out: with and without documents the compiler makes two loops of this one, and would choose for each.
            s = std::fma(rate, double(dt(k.first + l, h)), k.documents.reach(k.first + l) > 0 ? s : 0);
            to.sum(h, l) = A(s);
            to.rest(h, l) = A((s - double(A(s))) / rest_unit);
          }
          const Index begin = k.begin(k.length - 1), last = k.length - 1;
          for (Index l = 0; l < k.length; ++l) {
            to.from_start(h, l) = k.carried(l) ? fast_exp(to.sum(h, l)) : A(0);
            to.to_end(h, l) = l >= begin ? fast_exp(difference(to.sum(h, last), to.rest(h, last), to.sum(h, l), to.rest(h, l))) : A(0);
          }
        });
  }
};

// W of one head; s and rest are its row of the decay.
template <class A>
void decayed(Device& dev, const Chunk& chunk, Matrix<const A> g, const A* s, const A* rest, Matrix<A> w) {
  for_rows(
      dev, "ssd_decayed", g.rows, KOKKOS_LAMBDA(const Index l) {
        const A* const from = g.row(l);
        A* const to = w.row(l);
        const Index begin = chunk.begin(l);
        for (Index k = 0; k < begin; ++k) to[k] = 0;
#pragma GCC ivdep
        for (Index k = begin; k <= l; ++k) to[k] = from[k] * fast_exp(difference(s[l], rest[l], s[k], rest[k]));
        for (Index k = l + 1; k < w.columns; ++k) to[k] = 0;
      });
}

// State times the decay of the whole chunk, head by head.
template <class A>
void decay_state(Device& dev, const Layout& n, const Chunk& k, const Decay<A>& decay, Index first_head,
                 Matrix<const A> from, Matrix<A> to) {
  for_rows(
      dev, "ssd_decay_state", n.channels, KOKKOS_LAMBDA(const Index i) {
        const A factor = decay.from_start(first_head + i / n.width, k.length - 1);
        const A* const in = from.row(i);
        A* const out = to.row(i);
#pragma GCC ivdep  // `to` may be `from`
        for (Index j = 0; j < n.state; ++j) out[j] = factor * in[j];
      });
}

template <class A>
void copy(Device& dev, const A* from, A* to, Index count) {  // zeros where `from` is null
  for_rows(
      dev, "ssd_copy", 1, KOKKOS_LAMBDA(const Index) {
        for (Index i = 0; i < count; ++i) to[i] = from ? from[i] : A(0);
      });
}

}  // namespace

template <class T>
void ssd(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w,
         Tensor2<const Acc<T>> initial, Tensor2<T> y, SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last) {
  using A = Acc<T>;
  check(shape, in, saved);
  const Layout n(shape, in.documents);
  const Index Q = n.chunk, P = n.width, R = n.per_group, state_size = n.heads * P * n.state;
  if (const auto run = dev.launch("ssd", 4.0 * in.x.rows * n.heads, 2.0 * sizeof(A) * n.batch * state_size)) {
    const A low = A(shape.dt_low), high = A(shape.dt_high);
    for_rows(
        dev, "ssd_dt", in.x.rows, KOKKOS_LAMBDA(const Index r) {
          for (Index h = 0; h < n.heads; ++h) {
            const A v = softplus(A(in.dt_raw(r, h)) + w.dt_bias(h));
            saved.dt(r, h) = v < low ? low : (v > high ? high : v);
          }
        });
    for (Index b = 0; b < n.batch; ++b)
      copy<A>(dev, initial.data() ? initial.data() + b * state_size : nullptr, &saved.states(b, 0, 0), state_size);
  }

  Scope scope(dev.scratch);
  const Decay<A> decay(dev, n);
  const auto g_room = dev.scratch.tensor<A>(Q, Q), w_room = dev.scratch.tensor<A>(Q, Q),
             u_room = dev.scratch.tensor<A>(Q, n.channels);
  const auto b_room = room_for<T>(dev, Q, n.state), c_room = room_for<T>(dev, Q, n.state),
             y_room = room_for<T>(dev, Q, n.channels);

  for (Index b = 0; b < n.batch; ++b)
    for (Index c = 0; c < n.chunks; ++c) {
      const Chunk k = n.at(b, c);
      const Index q = k.length;
      if (const auto run = dev.launch("ssd", 6.0 * n.heads * q, 4.0 * sizeof(A) * n.heads * q))
        decay.fill(dev, k, saved.dt, w.a_log);
      A* const next = c + 1 < n.chunks ? saved.states.data() + (b * n.chunks + c + 1) * state_size
                      : last.data()    ? last.data() + b * state_size
                                       : nullptr;
      for (Index g = 0; g < n.groups; ++g) {
        const Index first = g * R;  // head
        const Matrix<const T> x = n.of_heads(in.x, k, g);
        const Matrix<const A> B = widened<T>(dev, n.of_group(in.b, k, g), b_room),
                              C = widened<T>(dev, n.of_group(in.c, k, g), c_room);
        const Matrix<const A> entering = n.states<const A>(saved.states.data() + (b * n.chunks + c) * state_size, g);
        const Matrix<T> y_block = n.of_heads(Matrix<T>(y), k, g);
        const Matrix<A> out = target<T>(y_block, y_room), u = part_of(u_room, q, n.channels);
        const Matrix<A> products = part_of(g_room, q, q), weights = part_of(w_room, q, q);

        product<A>(dev, Op::none, C, Op::transpose, entering, out);
        product<A>(dev, Op::none, C, Op::transpose, B, products);
        if (const auto run =
                dev.launch("ssd", 4.0 * q * n.channels, double(q) * n.channels * (sizeof(T) + 3 * sizeof(A))))
          for_rows(
              dev, "ssd_output", q, KOKKOS_LAMBDA(const Index l) {
                for (Index r = 0; r < R; ++r) {
                  const A decayed_by = decay.from_start(first + r, l), dt = saved.dt(k.first + l, first + r),
                          d = w.d(first + r);
                  const T* const from = x.row(l) + r * P;
                  A *const to = out.row(l) + r * P, *const up = u.row(l) + r * P;
#pragma GCC ivdep
                  for (Index p = 0; p < P; ++p) {
                    const A v = A(from[p]);
                    to[p] = decayed_by * to[p] + d * v;
                    up[p] = dt * v;
                  }
                }
              });
        for (Index r = 0; r < R; ++r) {
          if (const auto run = dev.launch("ssd", 2.0 * q * q, 2.0 * sizeof(A) * q * q))
            decayed<A>(dev, k, products, &decay.sum(first + r, 0), &decay.rest(first + r, 0), weights);
          for_bands(k, [&](Index l, Index count, Index s, Index seen) {
            const Matrix<const A> band = weights.block(l, count, s, seen), before = n.of_head(u, r).block(s, seen, 0, P);
            product<A>(dev, Op::none, band, Op::none, before, n.of_head(out, r).block(l, count, 0, P), 1, 1);
          });
        }
        deliver<T>(dev, out, y_block);
        if (next == nullptr) continue;
        const Matrix<A> leaving = n.states(next, g);
        if (const auto run =
                dev.launch("ssd", double(n.channels) * (q + n.state), 2.0 * sizeof(A) * n.channels * (q + n.state))) {
          decay_state<A>(dev, n, k, decay, first, entering, leaving);
          for_rows(
              dev, "ssd_to_end", q, KOKKOS_LAMBDA(const Index l) {
                for (Index r = 0; r < R; ++r)
                  for (Index p = 0; p < P; ++p) u(l, r * P + p) *= decay.to_end(first + r, l);
              });
        }
        product<A>(dev, Op::transpose, u, Op::none, B, leaving, 1, 1);
      }
    }
}

namespace {

// For one head, with dW = dY U':  W as in forward,  dG += dW exp(s_l - s_s),  E = dW W,
//   da_k = sum_{l>=k} sum_{s<k} E(l,s): time runs backwards and `reached`(s) = sum of E(l..,s), which is zero before l's document.
template <class A>
void decayed_backward(const Chunk& chunk, const A* g, const A* s, const A* rest, const A* dw, A* w, A* dg, A* reached, double* da) {
  const Index q = chunk.length;
  for (Index k = 0; k < q; ++k) reached[k] = 0;
  for (Index l = q - 1; l >= 0; --l) {
    const A *const g_row = g + l * q, *const dw_row = dw + l * q;
    A *const w_row = w + l * q, *const dg_row = dg + l * q;
    const Index begin = chunk.begin(l);
    for (Index k = 0; k < begin; ++k) w_row[k] = 0;
    A sum = 0;
#pragma GCC ivdep
    for (Index k = begin; k < l; ++k) {
      const A decay = fast_exp(difference(s[l], rest[l], s[k], rest[k])), weight = g_row[k] * decay;
      w_row[k] = weight;
      dg_row[k] += dw_row[k] * decay;
      reached[k] += dw_row[k] * weight;
      sum += reached[k];
    }
    da[l] = sum;
    w_row[l] = g_row[l];
    dg_row[l] += dw_row[l];
    for (Index k = l + 1; k < q; ++k) w_row[k] = 0;
  }
}

}  // namespace

// With dS the gradient of the state that leaves the chunk and S the state that entered (dY, U, x per head; sums over
// the head's channels):
//   dU = W' dY + exp(s_Q - s) B dS',   dx = dt dU + D dY,   dC = dG B + exp(s) dY S,   dB = dG' C + exp(s_Q - s) U dS
//   I_l = exp(s_l) dY_l . (S C_l),   F_s = exp(s_Q - s_s) U_s . (dS B_s),   J = exp(s_Q) S . dS
//   da_k = sum_{l>=k,s<k} E(l,s) + sum_{l>=k} I_l + sum_{s<k} F_s + J,   ddt = x . dU + A da,   dS <- exp(s_Q) dS +
//   exp(s) dY' C
template <class T>
void ssd_backward(Device& dev, const SsdShape& shape, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w,
                  SsdSaved<Acc<T>> saved, Tensor2<const T> dy, Tensor2<const Acc<T>> dlast, SsdInputGradient<T> d_in,
                  SsdWeightGradient<Acc<T>> dw, Tensor2<Acc<T>> dinitial) {
  using A = Acc<T>;
  check(shape, in, saved);
  const Layout n(shape, in.documents);
  const Index Q = n.chunk, P = n.width, R = n.per_group, state_size = n.heads * P * n.state;
  const A low = A(shape.dt_low), high = A(shape.dt_high);

  Scope scope(dev.scratch);
  const Decay<A> decay(dev, n);
  const auto dstate = dev.scratch.tensor<A>(state_size);
  const auto g_room = dev.scratch.tensor<A>(Q, Q), dg_room = dev.scratch.tensor<A>(Q, Q);
  const auto w_room = dev.scratch.tensor<A>(Q, Q), dw_room = dev.scratch.tensor<A>(Q, Q);
  const auto u_room = dev.scratch.tensor<A>(Q, n.channels), du_room = dev.scratch.tensor<A>(Q, n.channels);
  const auto dy_decayed_room = dev.scratch.tensor<A>(Q, n.channels),
             u_decayed_room = dev.scratch.tensor<A>(Q, n.channels);
  const auto da = dev.scratch.tensor<double>(R, Q);
  const auto ddt = dev.scratch.tensor<A>(R, Q), dd = dev.scratch.tensor<A>(R, Q);
  const auto inflow = dev.scratch.tensor<A>(R, Q), outflow = dev.scratch.tensor<A>(R, Q);  // I and F
  const auto dc_head_room = dev.scratch.tensor<A>(Q, n.state);
  const auto through = dev.scratch.tensor<A>(n.channels), reached = dev.scratch.tensor<A>(Q);
  const auto b_room = room_for<T>(dev, Q, n.state), c_room = room_for<T>(dev, Q, n.state),
             dy_room = room_for<T>(dev, Q, n.channels);
  const auto db_room = room_for<T>(dev, Q, n.state), dc_room = room_for<T>(dev, Q, n.state);

  for (Index b = 0; b < n.batch; ++b) {
    if (const auto run = dev.launch("ssd_backward", 0, sizeof(A) * state_size))
      copy<A>(dev, dlast.data() ? dlast.data() + b * state_size : nullptr, dstate.data(), state_size);
    for (Index c = n.chunks - 1; c >= 0; --c) {
      const Chunk k = n.at(b, c);
      const Index q = k.length;
      if (const auto run = dev.launch("ssd_backward", 6.0 * n.heads * q, 4.0 * sizeof(A) * n.heads * q))
        decay.fill(dev, k, saved.dt, w.a_log);
      for (Index g = 0; g < n.groups; ++g) {
        const Index first = g * R;  // head
        const Matrix<const T> x = n.of_heads(in.x, k, g);
        const Matrix<const A> dY = widened<T>(dev, n.of_heads(Matrix<const T>(dy), k, g), dy_room);
        const Matrix<const A> B = widened<T>(dev, n.of_group(in.b, k, g), b_room),
                              C = widened<T>(dev, n.of_group(in.c, k, g), c_room);
        const Matrix<const A> entering = n.states<const A>(saved.states.data() + (b * n.chunks + c) * state_size, g);
        const Matrix<A> leaving = n.states(dstate.data(), g);
        const Matrix<T> db_block = n.of_group(d_in.b, k, g), dc_block = n.of_group(d_in.c, k, g),
                        dx = n.of_heads(d_in.x, k, g);
        const Matrix<A> dB = target<T>(db_block, db_room), dC = target<T>(dc_block, dc_room);
        const Matrix<A> u = part_of(u_room, q, n.channels), du = part_of(du_room, q, n.channels);
        const Matrix<A> dy_decayed = part_of(dy_decayed_room, q, n.channels),
                        u_decayed_block = part_of(u_decayed_room, q, n.channels);
        const Matrix<A> dc_head = part_of(dc_head_room, q, n.state);
        const Matrix<A> products = part_of(g_room, q, q), dproducts = part_of(dg_room, q, q);
        const Matrix<A> weights = part_of(w_room, q, q), dweights = part_of(dw_room, q, q);

        // Through the states: what the entering one gave to the outputs, what the tokens gave to the leaving one.
        product<A>(dev, Op::none, B, Op::transpose, leaving, du);
        if (const auto run =
                dev.launch("ssd_backward", 6.0 * q * n.channels, double(q) * n.channels * (sizeof(T) + 7 * sizeof(A))))
          for_rows(
              dev, "ssd_states_backward", q, KOKKOS_LAMBDA(const Index l) {
                for (Index r = 0; r < R; ++r) {
                  const A start = decay.from_start(first + r, l), end = decay.to_end(first + r, l),
                          dt = saved.dt(k.first + l, first + r);
                  const T* const xs = x.row(l) + r * P;
                  const A* const dys = dY.row(l) + r * P;
                  A *const us = u.row(l) + r * P, *const dus = du.row(l) + r * P,
                           *const decayed_dys = dy_decayed.row(l) + r * P;
                  A* const u_decayed = u_decayed_block.row(l) + r * P;
                  A out_sum = 0;
#pragma GCC ivdep
                  for (Index p = 0; p < P; ++p) {
                    decayed_dys[p] = start * dys[p];
                    us[p] = dt * A(xs[p]);
                    dus[p] *= end;
                    out_sum += us[p] * dus[p];
                    u_decayed[p] = end * us[p];
                  }
                  outflow(r, l) = out_sum;
                }
              });
        for (Index r = 0; r < R; ++r) {
          product<A>(dev, Op::none, n.of_head(dy_decayed, r), Op::none, entering.block(r * P, P, 0, n.state), dc_head);
          if (const auto run = dev.launch("ssd_backward", 3.0 * q * n.state, 4.0 * sizeof(A) * q * n.state))
            for_rows(
                dev, "ssd_inflow", q, KOKKOS_LAMBDA(const Index l) {
                  const A *const part = dc_head.row(l), *const cs = C.row(l);
                  A* const dcs = dC.row(l);
                  A sum = 0;
#pragma GCC ivdep
                  for (Index j = 0; j < n.state; ++j) {
                    sum += part[j] * cs[j];
                    dcs[j] = r == 0 ? part[j] : dcs[j] + part[j];
                  }
                  inflow(r, l) = sum;
                });
        }
        product<A>(dev, Op::none, u_decayed_block, Op::none, leaving, dB);
        if (const auto run =
                dev.launch("ssd_backward", 3.0 * n.channels * n.state, 3.0 * sizeof(A) * n.channels * n.state)) {
          for_rows(
              dev, "ssd_through", n.channels, KOKKOS_LAMBDA(const Index i) {
                const A *const s = entering.row(i), *const ds = leaving.row(i);
                A sum = 0;
                for (Index j = 0; j < n.state; ++j) sum += s[j] * ds[j];
                through(i) = sum * decay.from_start(first + i / P, q - 1);
              });
          decay_state<A>(dev, n, k, decay, first, leaving, leaving);
        }
        product<A>(dev, Op::transpose, dy_decayed, Op::none, C, leaving, 1, 1);

        // Within the chunk.
        product<A>(dev, Op::none, C, Op::transpose, B, products);
        if (const auto run = dev.launch("ssd_backward", 0, sizeof(A) * q * q))
          copy<A>(dev, nullptr, dproducts.data, q * q);
        for (Index r = 0; r < R; ++r) {
          const Matrix<const A> dY_head = n.of_head(dY, r);
          for_bands(k, [&](Index l, Index count, Index s, Index seen) {
            const Matrix<const A> before = n.of_head(u, r).block(s, seen, 0, P);
            product<A>(dev, Op::none, dY_head.block(l, count, 0, P), Op::transpose, before, dweights.block(l, count, s, seen));
          });
          if (const auto run = dev.launch("ssd_backward", 5.0 * q * q, 4.0 * sizeof(A) * q * q))
            for_rows(
                dev, "ssd_decayed_backward", 1, KOKKOS_LAMBDA(const Index) {
                  decayed_backward<A>(k, products.data, &decay.sum(first + r, 0), &decay.rest(first + r, 0), dweights.data,
                                      weights.data, dproducts.data, reached.data(), &da(r, 0));
                });
          for_bands(k, [&](Index l, Index count, Index s, Index seen) {
            const Matrix<const A> band = weights.block(l, count, s, seen);
            product<A>(dev, Op::transpose, band, Op::none, dY_head.block(l, count, 0, P), n.of_head(du, r).block(s, seen, 0, P), 1, 1);
          });
        }
        product<A>(dev, Op::none, dproducts, Op::none, B, dC, 1, 1);
        product<A>(dev, Op::transpose, dproducts, Op::none, C, dB, 1, 1);
        deliver<T>(dev, dB, db_block);
        deliver<T>(dev, dC, dc_block);

        const auto run =
            dev.launch("ssd_backward", 7.0 * q * n.channels, double(q) * n.channels * (2 * sizeof(T) + 2 * sizeof(A)));
        if (!run) continue;
        for_rows(
            dev, "ssd_input_backward", q, KOKKOS_LAMBDA(const Index l) {
              for (Index r = 0; r < R; ++r) {
                const A dt = saved.dt(k.first + l, first + r), d = w.d(first + r);
                const T* const xs = x.row(l) + r * P;
                const A *const dys = dY.row(l) + r * P, *const dus = du.row(l) + r * P;
                T* const dxs = dx.row(l) + r * P;
                A ddt_sum = 0, dd_sum = 0;
#pragma GCC ivdep
                for (Index p = 0; p < P; ++p) {
                  const A v = A(xs[p]);
                  dxs[p] = T(dt * dus[p] + d * dys[p]);
                  ddt_sum += v * dus[p];
                  dd_sum += v * dys[p];
                }
                ddt(r, l) = ddt_sum;
                dd(r, l) = dd_sum;
              }
            });
        for_rows(
            dev, "ssd_dt_backward", R, KOKKOS_LAMBDA(const Index r) {
              const Index h = first + r;
              const double rate = -std::exp(double(w.a_log(h)));
              double later = 0;  // sum of I from l on, and J
              for (Index p = 0; p < P; ++p) later += through(r * P + p);
              for (Index l = q - 1; l >= 0; --l) da(r, l) += later += inflow(r, l);
              double earlier = 0;
              double d_rate = 0, d_bias = 0, d_skip = 0;  // long sums of both signs
              for (Index l = 0; l < q; ++l) {
                const double dal = da(r, l) + earlier;
                const A v = A(in.dt_raw(k.first + l, h)) + w.dt_bias(h), free_dt = softplus(v);
                earlier += outflow(r, l);
                const bool clamped = free_dt < low || free_dt > high;
                const A dv = clamped ? A(0) : A(ddt(r, l) + rate * dal) * softplus_slope(v);
                d_in.dt_raw(k.first + l, h) = T(dv);
                d_rate += dal * double(saved.dt(k.first + l, h));
                d_bias += dv;
                d_skip += dd(r, l);
              }
              if (dw.a_log.data()) dw.a_log(h) += A(d_rate * rate);
              if (dw.dt_bias.data()) dw.dt_bias(h) += A(d_bias);
              if (dw.d.data()) dw.d(h) += A(d_skip);
            });
      }
    }
    if (dinitial.data())
      if (const auto run = dev.launch("ssd_backward", 0, 2.0 * sizeof(A) * state_size))
        copy<A>(dev, dstate.data(), dinitial.data() + b * state_size, state_size);
  }
}

#define GYR_SSD(T)                                                                                                     \
  template void ssd<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<const Acc<T>>, \
                       Tensor2<T>, SsdSaved<Acc<T>>, Tensor2<Acc<T>>);                                                 \
  template void ssd_backward<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&,               \
                                SsdSaved<Acc<T>>, Tensor2<const T>, Tensor2<const Acc<T>>, SsdInputGradient<T>,        \
                                SsdWeightGradient<Acc<T>>, Tensor2<Acc<T>>);
GYR_SSD(double)
GYR_SSD(float)
GYR_SSD(bf16)
#undef GYR_SSD

}  // namespace gyr
