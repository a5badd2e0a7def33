// SPDX-License-Identifier: BSD-3-Clause
// Outputs of a chunk, from the entering state S and the chunk's own tokens, head by head:
//   Y = exp(s) C S' + W U + D x,   G = C B',  W = G exp(s_l - s_s) for s <= l of one document
#include "kernels/kokkos/ssd_group.hpp"

namespace gyr::scan {

namespace {

// Splits the (q,q) matrix of a chunk's tokens against earlier ones into bands of rows. body(row, rows, column, columns)
// gets all columns that are visible to its rows. GEMMs over bands skip most of the zeros above the diagonal and before
// documents.
template <class Body>
void for_bands(const Chunk& k, const Body& body) {
  constexpr Index band = 64;
  for (Index row = 0; row < k.length; row += band) {
    const Index rows = std::min(band, k.length - row), column = k.planned_begin(row);
    body(row, rows, column, row + rows - column);
  }
}

// Computes W of one head. s and rest: the head's row of the decay exponents.
template <class A, class P>
void decayed(Device& dev, const Chunk& chunk, Matrix<const A> g, const A* s, const A* rest, Matrix<P> w) {
  for_rows(
      dev, "ssd_decayed", g.rows, KOKKOS_LAMBDA(const Index l) {
        const A* const from = g.row(l);
        P* const to = w.row(l);
        const Index begin = chunk.begin(l);  // earlier tokens are of another document
        for (Index k = 0; k < begin; ++k) to[k] = P(A(0));
#pragma GCC ivdep
        for (Index k = begin; k <= l; ++k) to[k] = P(from[k] * fast_exp(difference(s[l], rest[l], s[k], rest[k])));
        for (Index k = l + 1; k < w.columns; ++k) to[k] = P(A(0));
      });
}

// For one head, with dW = dY U':  W as in forward,  dG += dW exp(s_l - s_s),  E = dW W,
//   da_k = sum_{l>=k} sum_{s<k} E(l,s)
// Tokens are processed from last to first. reached(s) is the sum of E(l',s) over l' >= l, which is zero for tokens s
// before l's document.
template <class A, class P>
void decayed_backward(const Chunk& chunk, const A* g, const A* s, const A* rest, const A* dw, P* w, A* dg, A* reached, double* da) {
  const Index q = chunk.length;
  for (Index k = 0; k < q; ++k) reached[k] = 0;
  for (Index l = q - 1; l >= 0; --l) {
    const A *const g_row = g + l * q, *const dw_row = dw + l * q;
    P* const w_row = w + l * q;
    A* const dg_row = dg + l * q;
    const Index begin = chunk.begin(l);
    for (Index k = 0; k < begin; ++k) w_row[k] = P(A(0));
    A sum = 0;
#pragma GCC ivdep
    for (Index k = begin; k < l; ++k) {
      const A decay = fast_exp(difference(s[l], rest[l], s[k], rest[k])), weight = g_row[k] * decay;
      w_row[k] = P(weight);
      dg_row[k] += dw_row[k] * decay;
      reached[k] += dw_row[k] * weight;
      sum += reached[k];
    }
    da[l] = sum;
    w_row[l] = P(g_row[l]);
    dg_row[l] += dw_row[l];
    for (Index k = l + 1; k < q; ++k) w_row[k] = P(A(0));
  }
}

// Scales the state term by the decay and adds the skip term: out = exp(s) out + D x.
template <class T, class P>
void carry_and_skip(Device& dev, const Group<T, P>& k, Tensor1<const Acc<T>> skip, Matrix<Acc<T>> out) {
  using A = Acc<T>;
  const double elements = double(k.tokens) * k.channels();
  const auto run = dev.launch("ssd", 3.0 * elements, elements * (sizeof(T) + 2 * sizeof(A)));
  if (!run) return;
  const Index R = k.heads, width = k.head_dim;
  for_rows(
      dev, "ssd_output", k.tokens, KOKKOS_LAMBDA(const Index l) {
        for (Index r = 0; r < R; ++r) {
          const A decayed_by = k.decay.from_start(k.first_head + r, l), d = skip(k.first_head + r);
          const T* const from = k.x.row(l) + r * width;
          A* const to = out.row(l) + r * width;
#pragma GCC ivdep
          for (Index p = 0; p < width; ++p) to[p] = decayed_by * to[p] + d * A(from[p]);
        }
      });
}

// Adds the contribution of the chunk's tokens: out += W U.
template <class T, class P>
void add_from_tokens(Device& dev, const Group<T, P>& k, Matrix<const P> u, Matrix<Acc<T>> out) {
  using A = Acc<T>;
  Scope scope(dev.scratch);
  const Index q = k.tokens, width = k.head_dim;
  const Matrix<A> cb = dev.scratch.tensor<A>(q, q);
  const Matrix<P> weights = dev.scratch.tensor<P>(q, q);
  matmul<P>(dev, MatrixOp::none, k.c, MatrixOp::transpose, k.b, cb);
  for_equal(dev, k.heads, [&](Index r) {
    const Index h = k.first_head + r;
    if (const auto run = dev.launch("ssd", 2.0 * q * q, double(sizeof(A) + sizeof(P)) * q * q))
      decayed<A, P>(dev, k.chunk, cb, &k.decay.sum(h, 0), &k.decay.rest(h, 0), weights);
    for_bands(k.chunk, [&](Index l, Index count, Index s, Index seen) {
      const Matrix<const P> band = weights.block(l, count, s, seen), before = k.of_head(u, r).block(s, seen, 0, width);
      matmul<P>(dev, MatrixOp::none, band, MatrixOp::none, before, k.of_head(out, r).block(l, count, 0, width), 1, 1);
    });
  });
}

}  // namespace

template <class T, class P>
void chunk_output(Device& dev, const Group<T, P>& k, Tensor1<const Acc<T>> d, Matrix<const Acc<T>> entering, Matrix<T> y) {
  Scope scope(dev.scratch);
  const Matrix<Acc<T>> out = target<T>(y, scratch_for<Acc<T>, T>(dev, k.tokens, k.channels()));
  const Matrix<P> u = dev.scratch.tensor<P>(k.tokens, k.channels());
  step_inputs<T, P>(dev, k, u);
  matmul<P>(dev, MatrixOp::none, k.c, MatrixOp::transpose, operand<P>(dev, entering), out);
  carry_and_skip<T, P>(dev, k, d, out);
  add_from_tokens<T, P>(dev, k, u, out);
  deliver<T>(dev, out, y);
}

template <class T, class P>
void carried_outputs(Device& dev, const Group<T, P>& k, Matrix<const P> dy, Matrix<P> carried) {
  using A = Acc<T>;
  const double elements = double(k.tokens) * k.channels();
  const auto run = dev.launch("ssd_backward", elements, 2.0 * sizeof(P) * elements);
  if (!run) return;
  for_rows(
      dev, "ssd_carried_outputs", k.tokens, KOKKOS_LAMBDA(const Index l) {
        for (Index r = 0; r < k.heads; ++r) {
          const A start = k.decay.from_start(k.first_head + r, l);
          const P* const from = dy.row(l) + r * k.head_dim;
          P* const to = carried.row(l) + r * k.head_dim;
#pragma GCC ivdep
          for (Index p = 0; p < k.head_dim; ++p) to[p] = P(start * A(from[p]));
        }
      });
}

namespace {

// dC = sum over heads of exp(s) dY S,   I_l = exp(s_l) dY_l . (S C_l)
template <class T, class P>
void from_state_backward(Device& dev, const Group<T, P>& k, Matrix<const Acc<T>> entering, Matrix<const P> carried, const GroupGradient<P>& grad) {
  using A = Acc<T>;
  Scope scope(dev.scratch);
  const Index q = k.tokens, N = k.state_size();
  const Matrix<A> dc_head = dev.scratch.tensor<A>(q, N);
  const Matrix<const P> state = operand<P>(dev, entering);
  for_equal(dev, k.heads, [&](Index r) {
    matmul<P>(dev, MatrixOp::none, k.of_head(carried, r), MatrixOp::none, state.block(r * k.head_dim, k.head_dim, 0, N), dc_head);
    const auto run = dev.launch("ssd_backward", 3.0 * q * N, 4.0 * sizeof(A) * q * N);
    if (!run) return;
    for_rows(
        dev, "ssd_inflow", q, KOKKOS_LAMBDA(const Index l) {
          const A* const part = dc_head.row(l);
          const P* const cs = k.c.row(l);
          A* const dcs = grad.c.row(l);
          A sum = 0;
#pragma GCC ivdep
          for (Index j = 0; j < N; ++j) {
            sum += part[j] * A(cs[j]);
            dcs[j] = r == 0 ? part[j] : dcs[j] + part[j];
          }
          grad.inflow(r, l) = sum;
        });
  });
}

// dU += W' dY,   dC += dG B,   dB += dG' C,   and sums of E in `within`
template <class T, class P>
void from_tokens_backward(Device& dev, const Group<T, P>& k, Matrix<const P> dy, const GroupGradient<P>& grad) {
  using A = Acc<T>;
  Scope scope(dev.scratch);
  const Index q = k.tokens, width = k.head_dim;
  const Matrix<A> cb = dev.scratch.tensor<A>(q, q), dcb = dev.scratch.tensor<A>(q, q), dweights = dev.scratch.tensor<A>(q, q);
  const Matrix<P> weights = dev.scratch.tensor<P>(q, q);
  const auto reached = dev.scratch.tensor<A>(q);
  matmul<P>(dev, MatrixOp::none, k.c, MatrixOp::transpose, k.b, cb);
  copy<A>(dev, "ssd_backward", nullptr, dcb.data, q * q);
  for_equal(dev, k.heads, [&](Index r) {
    const Index h = k.first_head + r;
    const Matrix<const P> dy_head = k.of_head(dy, r);
    for_bands(k.chunk, [&](Index l, Index count, Index s, Index seen) {
      const Matrix<const P> before = k.of_head(grad.u, r).block(s, seen, 0, width);
      matmul<P>(dev, MatrixOp::none, dy_head.block(l, count, 0, width), MatrixOp::transpose, before, dweights.block(l, count, s, seen));
    });
    if (const auto run = dev.launch("ssd_backward", 5.0 * q * q, (3.0 * sizeof(A) + sizeof(P)) * q * q))
      for_rows(
          dev, "ssd_decayed_backward", 1, KOKKOS_LAMBDA(const Index) {
            decayed_backward<A, P>(k.chunk, cb.data, &k.decay.sum(h, 0), &k.decay.rest(h, 0), dweights.data, weights.data, dcb.data, reached.data(),
                                   &grad.within(r, 0));
          });
    for_bands(k.chunk, [&](Index l, Index count, Index s, Index seen) {
      const Matrix<const P> band = weights.block(l, count, s, seen);
      matmul<P>(dev, MatrixOp::transpose, band, MatrixOp::none, dy_head.block(l, count, 0, width), k.of_head(grad.du, r).block(s, seen, 0, width), 1,
                1);
    });
  });
  const Matrix<const P> dg = operand<P>(dev, Matrix<const A>(dcb));
  matmul<P>(dev, MatrixOp::none, dg, MatrixOp::none, k.b, grad.c, 1, 1);
  matmul<P>(dev, MatrixOp::transpose, dg, MatrixOp::none, k.c, grad.b, 1, 1);
}

}  // namespace

// dU += W' dY,   dC = dG B + exp(s) dY S,   dB += dG' C,   I_l = exp(s_l) dY_l . (S C_l);   the caller adds exp(s) dY'
// C to dS
template <class T, class P>
void chunk_output_backward(Device& dev, const Group<T, P>& k, Matrix<const Acc<T>> entering, Matrix<const P> dy, Matrix<const P> carried,
                           const GroupGradient<P>& grad) {
  from_state_backward<T, P>(dev, k, entering, carried, grad);
  from_tokens_backward<T, P>(dev, k, dy, grad);
}

#define GYR_SSD(T, P)                                                                                                            \
  template void chunk_output<T, P>(Device&, const Group<T, P>&, Tensor1<const Acc<T>>, Matrix<const Acc<T>>, Matrix<T>);         \
  template void carried_outputs<T, P>(Device&, const Group<T, P>&, Matrix<const P>, Matrix<P>);                                  \
  template void chunk_output_backward<T, P>(Device&, const Group<T, P>&, Matrix<const Acc<T>>, Matrix<const P>, Matrix<const P>, \
                                            const GroupGradient<P>&);
GYR_SSD(double, double)
GYR_SSD(float, float)
GYR_SSD(bf16, float)
GYR_SSD(bf16, bf16)
#undef GYR_SSD

}  // namespace gyr::scan
