// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/convolution.hpp"

#include "kernels/kokkos/rows.hpp"
#include "kernels/math.hpp"

namespace gyr {

namespace {

constexpr Index block = 512;    // channels handled together: their weights and window stay in a cache
constexpr Index segment = 128;  // tokens handled together in forward

// The inputs of one sequence at any time: those of this call, those before it, zeros before the beginning.
template <class T>
struct History {
  Matrix<const T> x;
  const T* before;  // (B,K-1,C) or null
  const T* zeros;   // (C)
  Index seq_length, conv_kernel;
  Documents documents;

  // The first of the K weights that token t of sequence b uses: those before it reach back beyond its document.
  KOKKOS_INLINE_FUNCTION Index first_weight(Index b, Index t) const {
    const Index reach = documents.reach(b * seq_length + t);
    return reach < conv_kernel - 1 ? conv_kernel - 1 - reach : 0;
  }
  KOKKOS_INLINE_FUNCTION const T* row(Index b, Index t) const {
    if (t >= 0) return x.row(b * seq_length + t);
    return before ? before + (b * (conv_kernel - 1) + t + conv_kernel - 1) * x.columns : zeros;
  }
};

// Weights with the channels unit-stride: weight (K,C), then bias (C), which is zero where there is none.
template <class T>
struct Filter {
  using A = Acc<T>;
  Tensor2<A> weight;
  Tensor1<A> bias;
  Tensor1<T> zeros;

  Filter(Device& dev, Tensor2<const A> w)
      : weight(dev.scratch.tensor<A>(w.extent(1), w.extent(0))), bias(dev.scratch.tensor<A>(w.extent(0))), zeros(dev.scratch.tensor<T>(w.extent(0))) {
  }

  void fill(Device& dev, Tensor2<const A> w, Tensor1<const A> given_bias) const {
    const auto to = *this;
    for_rows(
        dev, "convolution_filter", w.extent(0), KOKKOS_LAMBDA(const Index j) {
          for (Index k = 0; k < Index(w.extent(1)); ++k) to.weight(k, j) = w(j, k);
          to.bias(j) = given_bias.data() ? given_bias(j) : A(0);
          to.zeros(j) = T(A(0));
        });
  }

  // c(t,j) of the channels [first, first + width)
  KOKKOS_INLINE_FUNCTION void apply(const History<T>& x, Index b, Index t, Index first, Index width, A* c) const {
    const A* const start = &bias(first);
    for (Index j = 0; j < width; ++j) c[j] = start[j];
    for (Index k = x.first_weight(b, t); k < x.conv_kernel; ++k) {
      const T* const in = x.row(b, t - (x.conv_kernel - 1) + k) + first;
      const A* const w = &weight(k, first);
#pragma GCC ivdep
      for (Index j = 0; j < width; ++j) c[j] += w[j] * A(in[j]);
    }
  }
};

template <class T>
void check(Index batch, const Matrix<const T>& x, const Tensor2<const Acc<T>>& w, const Tensor3<const T>& before) {
  const Index C = x.columns, K = w.extent(1);
  ensure(batch > 0 && x.rows % batch == 0 && Index(w.extent(0)) == C && K > 0, "convolution of {} sequences in ({},{}) with weights ({},{})", batch,
         x.rows, C, w.extent(0), K);
  ensure(!before.data() || (Index(before.extent(0)) == batch && Index(before.extent(1)) == K - 1 && Index(before.extent(2)) == C),
         "convolution needs ({},{},{}) inputs from before, not ({},{},{})", batch, K - 1, C, before.extent(0), before.extent(1), before.extent(2));
}

Index pieces(Index whole, Index piece) { return (whole + piece - 1) / piece; }

}  // namespace

template <class T>
void convolution(Device& dev, Index batch, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor3<const T> before,
                 Matrix<T> y, const Documents& documents) {
  using A = Acc<T>;
  check(batch, x, w, before);
  documents.check(x.rows);
  const Index C = x.columns, K = w.extent(1), seq_length = x.rows / batch;
  const auto run = dev.launch("convolution", (2.0 * K + 4) * x.rows * C, 2.0 * sizeof(T) * x.rows * C);
  const Workspace workspace(dev.scratch, "convolution");
  const Filter<T> filter(dev, w);
  if (!run) return;
  filter.fill(dev, w, bias);
  const History<T> history{x, before.data(), filter.zeros.data(), seq_length, K, documents};
  const Index blocks = pieces(C, block), segments = pieces(seq_length, segment);
  for_rows(
      dev, "convolution", batch * segments * blocks, KOKKOS_LAMBDA(const Index unit) {
        const Index first = unit % blocks * block, width = C - first < block ? C - first : block;
        const Index b = unit / blocks / segments, begin = unit / blocks % segments * segment;
        A c[block];
        for (Index t = begin; t < seq_length && t < begin + segment; ++t) {
          filter.apply(history, b, t, first, width, c);
          T* const out = y.row(b * seq_length + t) + first;
          for (Index j = 0; j < width; ++j) out[j] = T(silu(c[j]));
        }
      });
}

// Time runs backwards, so that dx(t) finds dc(t .. t+K-1) in a ring of K rows. A block of channels owns its dw and
// dbias.
template <class T>
void convolution_backward(Device& dev, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx, Tensor2<Acc<T>> dw, Tensor1<Acc<T>> dbias, Tensor3<T> dbefore,
                          const Documents& documents) {
  using A = Acc<T>;
  check(batch, x, w, before);
  documents.check(x.rows);
  const Index C = x.columns, K = w.extent(1), seq_length = x.rows / batch, blocks = pieces(C, block);
  const auto run = dev.launch("convolution_backward", (6.0 * K + 9) * x.rows * C, 3.0 * sizeof(T) * x.rows * C);
  const Workspace workspace(dev.scratch, "convolution_backward");
  const Filter<T> filter(dev, w);
  const auto ring = dev.scratch.tensor<A>(blocks, K, block), dweight = dev.scratch.tensor<A>(blocks, K, block);
  if (!run) return;
  filter.fill(dev, w, bias);
  const History<T> history{x, before.data(), filter.zeros.data(), seq_length, K, documents};
  for_rows(
      dev, "convolution_backward", blocks, KOKKOS_LAMBDA(const Index unit) {
        const Index first = unit * block, width = C - first < block ? C - first : block;
        A c[block], sum[block] = {};
        for (Index i = 0; i < K * block; ++i) (&dweight(unit, 0, 0))[i] = 0;
        for (Index b = 0; b < batch; ++b) {
          for (Index i = 0; i < K * block; ++i) (&ring(unit, 0, 0))[i] = 0;
          for (Index t = seq_length - 1; t >= (dbefore.data() ? 1 - K : 0); --t) {
            A* const dc = &ring(unit, (t + K) % K, 0);
            if (t >= 0) {
              filter.apply(history, b, t, first, width, c);
              const T* const dout = dy.row(b * seq_length + t) + first;
#pragma GCC ivdep
              for (Index j = 0; j < width; ++j) dc[j] = A(dout[j]) * silu_slope(c[j]);
              for (Index j = 0; j < width; ++j) sum[j] += dc[j];
              for (Index k = history.first_weight(b, t); k < K; ++k) {
                const T* const in = history.row(b, t - (K - 1) + k) + first;
                A* const d = &dweight(unit, k, 0);
#pragma GCC ivdep
                for (Index j = 0; j < width; ++j) d[j] += dc[j] * A(in[j]);
              }
            } else {
              for (Index j = 0; j < width; ++j) dc[j] = 0;
            }
            for (Index j = 0; j < width; ++j) c[j] = 0;
            for (Index k = 0; k < K; ++k) {
              const Index user = t + K - 1 - k;  // the token that sees this one through weight k
              if (user < seq_length && user >= 0 && k < history.first_weight(b, user)) continue;
              const A *const later = &ring(unit, (user + K) % K, 0), *const weight = &filter.weight(k, first);
              for (Index j = 0; j < width; ++j) c[j] += weight[j] * later[j];
            }
            T* const out = t >= 0 ? dx.row(b * seq_length + t) + first : &dbefore(b, t + K - 1, first);
            for (Index j = 0; j < width; ++j) out[j] = T(c[j]);
          }
        }
        for (Index j = 0; j < width; ++j) {
          for (Index k = 0; dw.data() && k < K; ++k) dw(first + j, k) += dweight(unit, k, j);
          if (dbias.data()) dbias(first + j) += sum[j];
        }
      });
}

template <class T>
void convolution_tail(Device& dev, Index batch, Matrix<const T> x, Tensor3<const T> before, Tensor3<T> after) {
  const Index C = x.columns, K = after.extent(1) + 1, seq_length = x.rows / batch;
  const auto run = dev.launch("convolution_tail", 0, 2.0 * sizeof(T) * batch * (K - 1) * C);
  if (!run) return;
  for_rows(
      dev, "convolution_tail", batch, KOKKOS_LAMBDA(const Index b) {
        for (Index i = 0; i < K - 1; ++i) {  // ascending: a row that moves inside `before` moves to where it is no longer needed
          const Index t = seq_length - (K - 1) + i;
          for (Index j = 0; j < C; ++j) {
            if (t >= 0) after(b, i, j) = x(b * seq_length + t, j);
            else after(b, i, j) = before.data() ? before(b, t + K - 1, j) : T(Acc<T>(0));
          }
        }
      });
}

#define GYR_CONVOLUTION(T)                                                                                                                 \
  template void convolution<T>(Device&, Index, Matrix<const T>, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>, Tensor3<const T>, Matrix<T>, \
                               const Documents&);                                                                                          \
  template void convolution_backward<T>(Device&, Index, Matrix<const T>, Matrix<const T>, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>,    \
                                        Tensor3<const T>, Matrix<T>, Tensor2<Acc<T>>, Tensor1<Acc<T>>, Tensor3<T>, const Documents&);      \
  template void convolution_tail<T>(Device&, Index, Matrix<const T>, Tensor3<const T>, Tensor3<T>);
GYR_CONVOLUTION(double)
GYR_CONVOLUTION(float)
GYR_CONVOLUTION(bf16)
#undef GYR_CONVOLUTION

}  // namespace gyr
