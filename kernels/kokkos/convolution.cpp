// SPDX-License-Identifier: BSD-3-Clause
// Causal depthwise convolution, with or without SiLU, on the host. kernels/ops/convolution.hpp has the formulas.
#include "kernels/ops/convolution.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/base/math.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/elementwise.hpp"

namespace gyr::backend {

namespace {

constexpr Index block = 512;    // channels per task: their weights and window stay in cache
constexpr Index segment = 128;  // tokens per task in the forward pass
constexpr int most_taps = largest_conv_kernel;

// Inputs of one sequence at any token t: x for t >= 0, `before` for the tokens before this call, and zeros before that.
template <class T>
struct History {
  Matrix<const T> x;
  const T* before;  // inputs before this call, (B,K-1,C), or null
  const T* zeros;   // a row of zeros, (C)
  Index seq_length, conv_kernel;
  Documents documents;

  // First of the K weights that token t of sequence b uses. Earlier weights would reach back beyond its document.
  KOKKOS_INLINE_FUNCTION Index first_weight(Index b, Index t) const {
    const Index reach = documents.reach(b * seq_length + t);
    return reach < conv_kernel - 1 ? conv_kernel - 1 - reach : 0;
  }
  KOKKOS_INLINE_FUNCTION const T* row(Index b, Index t) const {
    if (t >= 0) return x.row(b * seq_length + t);
    return before ? before + (b * (conv_kernel - 1) + t + conv_kernel - 1) * x.columns : zeros;
  }
  // Pointers to the inputs that token t multiplies with each of `taps` weights, from a channel on. The last K weights
  // are in use, and the others get zeros.
  template <int taps>
  KOKKOS_INLINE_FUNCTION void seen(Index b, Index t, Index channel, const T* (&in)[taps]) const {
    const Index unused = taps - conv_kernel, first = unused + first_weight(b, t);
    for (Index k = 0; k < taps; ++k) in[k] = (k < first ? zeros : row(b, t - (taps - 1) + k)) + channel;
  }
};

// Weights with unit-stride channels: weight (taps,C), whose first taps - K rows are zero, and bias (C), zero if there
// is none.
template <class T, int taps>
struct Filter {
  using A = Acc<T>;
  Tensor2<A> weight;
  Tensor1<A> bias;
  Tensor1<T> zeros;

  Filter(Device& dev, Index channels)
      : weight(dev.scratch.tensor<A>(taps, channels)), bias(dev.scratch.tensor<A>(channels)), zeros(dev.scratch.tensor<T>(channels)) {}

  void fill(Device& dev, Tensor2<const A> w, Tensor1<const A> given_bias) const {
    const auto to = *this;
    const Index unused = taps - Index(w.extent(1));
    for_rows(
        dev, "convolution_filter", w.extent(0), KOKKOS_LAMBDA(const Index j) {
          for (Index k = 0; k < taps; ++k) to.weight(k, j) = k < unused ? A(0) : w(j, k - unused);
          to.bias(j) = given_bias.data() ? given_bias(j) : A(0);
          to.zeros(j) = T(A(0));
        });
  }
};

// Calls f with a number of taps that holds K weights, so that loops over taps have a fixed length. The sums are
// explicit chains of fused multiply-adds, which the compiler may not reorder. Another order would round more often,
// with a visible effect on gradients.
template <class F>
void with_taps(Index conv_kernel, const F& f) {
  if (conv_kernel <= 4) f(std::integral_constant<int, 4>());
  else f(std::integral_constant<int, most_taps>());
}

// The end of the convolution is a template parameter of the kernels, so that their loops over channels vectorize.
template <class F>
void with_end(ConvolutionEnd end, const F& f) {
  if (end == ConvolutionEnd::silu) f(std::true_type());
  else f(std::false_type());
}

template <class T, int taps, bool through_silu>
void forward(Device& dev, const Filter<T, taps>& filter, const History<T>& history, Index batch, Matrix<T> y) {
  using A = Acc<T>;
  const Index C = y.columns, seq_length = history.seq_length, blocks = ceil_div(C, block), segments = ceil_div(seq_length, segment);
  for_rows(
      dev, "convolution", batch * segments * blocks, KOKKOS_LAMBDA(const Index unit) {
        const Index first = unit % blocks * block, width = C - first < block ? C - first : block;
        const Index b = unit / blocks / segments, begin = unit / blocks % segments * segment;
        const A *const w = &filter.weight(0, first), *const bias = &filter.bias(first);
        const T* in[taps];
        for (Index t = begin; t < seq_length && t < begin + segment; ++t) {
          history.seen(b, t, first, in);
          T* const out = y.row(b * seq_length + t) + first;
#pragma GCC ivdep
          for (Index j = 0; j < width; ++j) {
            A c = bias[j];
            for (int k = 0; k < taps; ++k) c = std::fma(w[k * C + j], A(in[k][j]), c);
            if constexpr (through_silu) out[j] = T(silu(c));
            else out[j] = T(c);
          }
        }
      });
}

// Backward pass. Tokens are processed from last to first, so that dx(t) finds dc(t .. t+K-1) in a ring buffer. Each
// block of channels owns its dw and dbias.
template <class T, int taps, bool through_silu>
struct Backward {
  using A = Acc<T>;
  Filter<T, taps> filter;
  History<T> history;
  Matrix<const T> dy;
  Matrix<T> dx;
  Tensor2<A> dw;
  Tensor1<A> dbias;
  Tensor3<T> dbefore;
  Tensor3<A> ring;     // (blocks, taps + 1, block): dc of the last tokens, then zeros
  Tensor3<A> dweight;  // (blocks, taps + 1, block): gradients of the weights, then of the bias

  // For each weight: dc of the token that multiplies the input at token t with it, or zeros if there is no such token.
  KOKKOS_INLINE_FUNCTION void users(Index unit, Index b, Index t, const A* (&later)[taps]) const {
    for (Index k = 0; k < taps; ++k) {
      const Index user = t + taps - 1 - k, unused = taps - history.conv_kernel;
      const bool sees = k >= unused && user < history.seq_length && user >= 0 && k >= unused + history.first_weight(b, user);
      later[k] = &ring(unit, sees ? user % taps : taps, 0);
    }
  }

  // Computes dc of token t, and adds its contribution to the gradients of the weights and the bias.
  KOKKOS_INLINE_FUNCTION void to_sum(Index unit, Index b, Index t, Index first, Index width) const {
    const T* in[taps];
    history.seen(b, t, first, in);
    const T* const dout = dy.row(b * history.seq_length + t) + first;
    const Index C = dy.columns;
    const A *const w = &filter.weight(0, first), *const bias = &filter.bias(first);
    A *const dc = &ring(unit, t % taps, 0), *const dw = &dweight(unit, 0, 0);
#pragma GCC ivdep
    for (Index j = 0; j < width; ++j) {
      A x[taps], c = bias[j];
      for (int k = 0; k < taps; ++k) x[k] = A(in[k][j]), c = std::fma(w[k * C + j], x[k], c);
      A d = A(dout[j]);
      if constexpr (through_silu) d *= silu_slope(c);
      for (int k = 0; k < taps; ++k) dw[k * block + j] += d * x[k];
      dw[taps * block + j] += d;
      dc[j] = d;
    }
  }

  KOKKOS_INLINE_FUNCTION void to_inputs(Index unit, Index b, Index t, Index first, Index width) const {
    const A* later[taps];
    users(unit, b, t, later);
    const Index C = dy.columns;
    const A* const w = &filter.weight(0, first);
    T* const out = t >= 0 ? dx.row(b * history.seq_length + t) + first : &dbefore(b, t + history.conv_kernel - 1, first);
#pragma GCC ivdep
    for (Index j = 0; j < width; ++j) {
      A d = 0;
      for (int k = 0; k < taps; ++k) d = std::fma(w[k * C + j], later[k][j], d);
      out[j] = T(d);
    }
  }

  KOKKOS_INLINE_FUNCTION void operator()(const Index unit) const {
    const Index first = unit * block, width = least(block, dy.columns - first), batch = dy.rows / history.seq_length;
    for (Index i = 0; i < (taps + 1) * block; ++i) (&dweight(unit, 0, 0))[i] = 0;
    for (Index j = 0; j < block; ++j) ring(unit, taps, j) = 0;
    for (Index b = 0; b < batch; ++b)
      for (Index t = history.seq_length - 1; t >= (dbefore.data() ? 1 - history.conv_kernel : 0); --t) {
        if (t >= 0) to_sum(unit, b, t, first, width);
        to_inputs(unit, b, t, first, width);
      }
    const Index unused = taps - history.conv_kernel;
    for (Index j = 0; j < width; ++j) {
      for (Index k = unused; dw.data() && k < taps; ++k) dw(first + j, k - unused) += dweight(unit, k, j);
      if (dbias.data()) dbias(first + j) += dweight(unit, taps, j);
    }
  }
};

}  // namespace

template <class T>
void convolution(Device& dev, Index batch, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor3<const T> before,
                 Matrix<T> y, const Documents& documents, ConvolutionEnd end) {
  const Index C = x.columns, K = w.extent(1);
  with_taps(K, [&](auto taps) {
    const Filter<T, taps> filter(dev, C);
    if (dev.dry_run()) return;
    filter.fill(dev, w, bias);
    const History<T> history{x, before.data(), filter.zeros.data(), x.rows / batch, K, documents};
    with_end(end, [&](auto silu) { forward<T, taps, silu>(dev, filter, history, batch, y); });
  });
}

template <class T>
void convolution_backward(Device& dev, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx, Tensor2<Acc<T>> dw, Tensor1<Acc<T>> dbias, Tensor3<T> dbefore,
                          const Documents& documents, ConvolutionEnd end) {
  using A = Acc<T>;
  const Index C = x.columns, K = w.extent(1), blocks = ceil_div(C, block);
  with_taps(K, [&](auto taps) {
    const Filter<T, taps> filter(dev, C);
    const auto ring = dev.scratch.tensor<A>(blocks, taps + 1, block), dweight = dev.scratch.tensor<A>(blocks, taps + 1, block);
    if (dev.dry_run()) return;
    filter.fill(dev, w, bias);
    const History<T> history{x, before.data(), filter.zeros.data(), x.rows / batch, K, documents};
    with_end(end, [&](auto silu) {
      for_rows(dev, "convolution_backward", blocks, Backward<T, taps, silu>{filter, history, dy, dx, dw, dbias, dbefore, ring, dweight});
    });
  });
}

template <class T>
void convolution_tail(Device& dev, Index batch, Matrix<const T> x, Tensor3<const T> before, Tensor3<T> after) {
  const Index C = x.columns, K = after.extent(1) + 1, seq_length = x.rows / batch;
  for_rows(
      dev, "convolution_tail", batch, KOKKOS_LAMBDA(const Index b) {
        for (Index i = 0; i < K - 1; ++i) {  // in ascending order, because `after` may be the memory of `before`
          const Index t = seq_length - (K - 1) + i;
          for (Index j = 0; j < C; ++j) {
            if (t >= 0) after(b, i, j) = x(b * seq_length + t, j);
            else after(b, i, j) = before.data() ? before(b, t + K - 1, j) : T(Acc<T>(0));
          }
        }
      });
}

GYR_SCALARS(GYR_CONVOLUTION)

}  // namespace gyr::backend
