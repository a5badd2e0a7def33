// SPDX-License-Identifier: BSD-3-Clause
// A thread takes some neighbouring channels through a segment of a sequence, and keeps what the kernel sees in registers. As on hosts, K weights are
// the last of `taps`, of which there are 4 or 16.
#include "kernels/backend.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr int threads = 128, few = 4;  // few: taps that leave registers for packs
constexpr Index forward_segment = 16, backward_segment = 64;  // tokens

// The inputs of all sequences at any time: of this call, before it, zeros before the beginning.
template <class T>
struct History {
  Global<const T> x;
  Global<const T> before;                 // (B (K-1), C), or empty
  Global<const std::int32_t> positions;   // (B T), or empty
  Index seq_length, conv_kernel, batch;

  Index channels() const { return x.columns(); }
  // The first of the K weights that token t of sequence b uses: those before it reach back beyond its document.
  GYR_DEVICE Index first_weight(Index b, Index t) const {
    if (!positions) return 0;
    const Index reach = positions.load(b * seq_length + t);
    return reach < conv_kernel - 1 ? conv_kernel - 1 - reach : 0;
  }
  template <int N>
  GYR_DEVICE Pack<T, N> input(Index b, Index t, Index c) const {
    if (t >= 0) return x.template load_pack<N>(b * seq_length + t, c);
    if (before && t > -conv_kernel) return before.template load_pack<N>(b * (conv_kernel - 1) + t + conv_kernel - 1, c);
    return Pack<T, N>();
  }
};

// Which sequence, segment and channels a thread has. Neighbours have neighbouring channels.
template <int N>
struct Place {
  Index b, begin, end, channel, unit;  // unit: the segment, counted through all sequences

  GYR_DEVICE Place(Index channels, Index seq_length, Index segment) {
    const Index tiles = ceil_div(channels, Index(N) * threads), segments = ceil_div(seq_length, segment);
    unit = block_index() / tiles;
    b = unit / segments, begin = unit % segments * segment;
    end = begin + segment < seq_length ? begin + segment : seq_length;
    channel = (block_index() % tiles * threads + thread_index()) * N;
  }
};
template <int N, class T>
Grid grid_of_segments(const History<T>& h, Index segment) {
  return {h.batch * ceil_div(h.seq_length, segment) * ceil_div(h.channels(), Index(N) * threads), threads};
}

template <class A>
struct Weights {
  Global<const A> w, bias;  // (C, K), (C) or empty
  bool packed;              // whether those of a channel, and the bias of some, come in packs

  template <int taps, int N>
  static Weights of(const Global<const A>& w, const Global<const A>& bias) {
    return {w, bias, taps == few && w.columns() == taps && w.template packs<taps>() && (!bias || bias.template packs<N>())};
  }
  template <int taps, int N>
  GYR_DEVICE Pack<A, N> bias_of(Index channel) const {
    if constexpr (taps == few)
      if (packed && bias) return bias.template load_pack<N>(0, channel);
    Pack<A, N> v;
    for (int i = 0; i < N; ++i) v.at[i] = bias ? bias.load(channel + i) : A(0);
    return v;
  }
  // Zeros first, of those that are not used.
  template <int taps>
  GYR_DEVICE Pack<A, taps> of_channel(Index channel, Index unused) const {
    if constexpr (taps == few)
      if (packed) return w.template load_pack<taps>(channel, 0);
    Pack<A, taps> v;
    for (int k = 0; k < taps; ++k) v.at[k] = k < unused ? A(0) : w.load(channel, k - unused);
    return v;
  }
};

// Of N channels: their weights, zeros first, and what a token sees through them.
template <class T, int taps, int N>
struct Window {
  using A = Acc<T>;
  A weight[taps][N], x[taps][N], bias[N];

  GYR_DEVICE Window(const History<T>& h, const Weights<A>& w, const Place<N>& at) {
    const Index unused = taps - h.conv_kernel;
    const auto of_all = w.template bias_of<taps, N>(at.channel);
    for (int i = 0; i < N; ++i) {
      const auto of_channel = w.template of_channel<taps>(at.channel + i, unused);
      bias[i] = of_all.at[i];
      for (int k = 0; k < taps; ++k) weight[k][i] = of_channel.at[k];
    }
    for (int k = 1; k < taps; ++k) put(k, k <= unused ? Pack<T, N>() : h.template input<N>(at.b, at.begin - taps + k, at.channel));
  }
  GYR_DEVICE void put(int k, const Pack<T, N>& in) {
    for (int i = 0; i < N; ++i) x[k][i] = A(in.at[i]);
  }
  // Moves on to token t: c, with the first of the taps that count.
  GYR_DEVICE Index next(const History<T>& h, const Place<N>& at, Index t, A (&c)[N]) {
    for (int k = 0; k + 1 < taps; ++k)
      for (int i = 0; i < N; ++i) x[k][i] = x[k + 1][i];
    put(taps - 1, h.template input<N>(at.b, t, at.channel));
    const Index first = taps - h.conv_kernel + h.first_weight(at.b, t);
    for (int i = 0; i < N; ++i) {
      c[i] = bias[i];
      for (int k = 0; k < taps; ++k) c[i] += k < first ? A(0) : weight[k][i] * x[k][i];
    }
    return first;
  }
};

template <class T, int taps, int N>
GYR_KERNEL convolution_kernel(History<T> h, Weights<Acc<T>> w, Global<T> y) {
  const Place<N> at(y.columns(), h.seq_length, forward_segment);
  if (at.channel >= y.columns()) return;
  Window<T, taps, N> window(h, w, at);
  for (Index t = at.begin; t < at.end; ++t) {
    Acc<T> c[N];
    window.next(h, at, t, c);
    Pack<T, N> out;
    for (int i = 0; i < N; ++i) out.at[i] = T(silu(c[i]));
    y.template store_pack<N>(at.b * h.seq_length + t, at.channel, out);
  }
}

// Token t adds w(k) dc(t) to dx(t - (taps-1) + k): a row is done once the last token that sees it has been. Tokens of the next segment that see
// this one are computed here too; `sums` (segments, taps + 1, C) counts those of the segment alone.
template <class T, int taps, int N>
GYR_KERNEL convolution_backward_kernel(History<T> h, Global<const T> dy, Weights<Acc<T>> w, Global<T> dx,
                                       Global<T> dbefore, Global<Acc<T>> sums) {
  using A = Acc<T>;
  const Place<N> at(dx.columns(), h.seq_length, backward_segment);
  if (at.channel >= dx.columns()) return;
  Window<T, taps, N> window(h, w, at);
  A din[taps][N] = {}, dw[taps + 1][N] = {};
  for (Index t = at.begin; t < at.end + taps - 1; ++t) {
    if (t < h.seq_length) {
      A c[N];
      const Index first = window.next(h, at, t, c);
      const auto dout = dy.template load_pack<N>(at.b * h.seq_length + t, at.channel);
      for (int i = 0; i < N; ++i) {
        const A dc = A(dout.at[i]) * silu_slope(c[i]), counted = t < at.end ? dc : A(0);
        for (int k = 0; k < taps; ++k) {
          din[k][i] += k < first ? A(0) : window.weight[k][i] * dc;
          dw[k][i] += k < first ? A(0) : counted * window.x[k][i];
        }
        dw[taps][i] += counted;
      }
    }
    const Index done = t - (taps - 1);
    Pack<T, N> out;
    for (int i = 0; i < N; ++i) out.at[i] = T(din[0][i]);
    if (done >= at.begin) dx.template store_pack<N>(at.b * h.seq_length + done, at.channel, out);
    else if (dbefore && done < 0 && done > -h.conv_kernel)
      dbefore.template store_pack<N>(at.b * (h.conv_kernel - 1) + done + h.conv_kernel - 1, at.channel, out);
    for (int i = 0; i < N; ++i) {
      for (int k = 0; k + 1 < taps; ++k) din[k][i] = din[k + 1][i];
      din[taps - 1][i] = 0;
    }
  }
  for (int k = 0; k <= taps; ++k) {
    Pack<A, N> sum;
    for (int i = 0; i < N; ++i) sum.at[i] = dw[k][i];
    sums.template store_pack<N>(at.unit * (taps + 1) + k, at.channel, sum);
  }
}

// dw(j,k) and dbias(j) += the sums of all segments, in their order.
template <class A>
GYR_KERNEL add_weights_kernel(Index taps, Index conv_kernel, Global<const A> sums, Global<A> dw, Global<A> dbias) {
  const Index j = block_index() * block_threads() + thread_index();
  if (j >= sums.columns()) return;
  for (Index k = taps - conv_kernel; k <= taps; ++k) {
    A total = 0;
    for (Index unit = k; unit < sums.rows(); unit += taps + 1) total += sums.load(unit, j);
    const Index at = k - (taps - conv_kernel);
    if (k == taps && dbias) dbias.store(j, dbias.load(j) + total);
    else if (k < taps && dw) dw.store(j, at, dw.load(j, at) + total);
  }
}

// The first token's window moves to where it is no longer needed: ascending, as `after` may be `before`.
template <class T>
GYR_KERNEL tail_kernel(Index seq_length, Index tokens, Global<const T> x, Global<const T> before, Global<T> after) {
  const Index b = block_index();
  for (Index j = thread_index(); j < x.columns(); j += block_threads())
    for (Index i = 0; i < tokens; ++i) {
      const Index t = seq_length - tokens + i;
      T v = T(Acc<T>(0));
      if (t >= 0) v = x.load(b * seq_length + t, j);
      else if (before) v = before.load(b * tokens + t + tokens, j);
      after.store(b * tokens + i, j, v);
    }
}

// (B, K-1, C) as (B (K-1), C); empty where there is none.
template <class T>
Global<T> rows_of(const Tensor3<T>& x) {
  if (!x.data()) return {};
  return Matrix<T>(x.data(), x.extent(0) * x.extent(1), x.extent(2), x.extent(2));
}

// f(taps, N)
template <class T, int N, class F, class... X>
void with_window(Index conv_kernel, const F& f, const Global<X>&... tensors) {
  if (conv_kernel > few) f(std::integral_constant<int, largest_conv_kernel>(), std::integral_constant<int, 1>());
  else with_packs_of<N>([&](auto n) { f(std::integral_constant<int, few>(), n); }, tensors...);
}

}  // namespace

template <class T>
void convolution(Device& dev, Index batch, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor3<const T> before,
                 Matrix<T> y, const Documents& documents) {
  if (dev.dry_run()) return;
  const Index K = w.extent(1);
  const History<T> history{x, rows_of(before), documents.positions, x.rows / batch, K, batch};
  const Global<T> out(y);
  with_window<T, pack_bytes / int(sizeof(T))>(
      K,
      [&](auto taps, auto n) {
        launch(dev, "convolution", grid_of_segments<n>(history, forward_segment), convolution_kernel<T, taps, n>, history, Weights<Acc<T>>::template of<taps, n>(w, bias),
               out);
      },
      history.x, history.before, out);
}

template <class T>
void convolution_backward(Device& dev, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx, Tensor2<Acc<T>> dw, Tensor1<Acc<T>> dbias, Tensor3<T> dbefore,
                          const Documents& documents) {
  using A = Acc<T>;
  const Index C = x.columns, K = w.extent(1), seq_length = x.rows / batch;
  const History<T> history{x, rows_of(before), documents.positions, seq_length, K, batch};
  const Global<const T> dout(dy);
  const Global<T> din(dx), dinput = rows_of(dbefore);
  with_window<T, 2>(
      K,
      [&](auto taps, auto n) {
        const Global<A> sums(dev.scratch.tensor<A>(batch * ceil_div(seq_length, backward_segment) * (taps + 1), C));
        if (dev.dry_run()) return;
        launch(dev, "convolution_backward", grid_of_segments<n>(history, backward_segment), convolution_backward_kernel<T, taps, n>, history, dout,
               Weights<A>::template of<taps, n>(w, bias), din, dinput, sums);
        launch(dev, "convolution_backward", {ceil_div(C, usual_threads), usual_threads}, add_weights_kernel<A>, Index(taps), K,
               Global<const A>(sums), dw, dbias);
      },
      history.x, history.before, dout, din, dinput);
}

template <class T>
void convolution_tail(Device& dev, Index batch, Matrix<const T> x, Tensor3<const T> before, Tensor3<T> after) {
  launch(dev, "convolution_tail", {batch, usual_threads}, tail_kernel<T>, x.rows / batch, Index(after.extent(1)), x, rows_of(before),
         rows_of(after));
}

GYR_SCALARS(GYR_CONVOLUTION)

}  // namespace gyr::backend
