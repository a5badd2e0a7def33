// SPDX-License-Identifier: BSD-3-Clause
// Causal depthwise convolution, with or without SiLU (kernels/ops/convolution.hpp). A thread processes some adjacent channels over a
// segment of a sequence. Its registers hold the window of inputs, and prefetched inputs. As in the host kernels, the K
// weights are the last of `taps` = 4 or 16 weights, padded with leading zeros.
#include <limits>

#include "kernels/ops/convolution.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr int warps = 4, few = 4;  // warps per block; taps for which a thread has registers for packs of channels
constexpr int depth = 4;  // prefetched inputs per thread
constexpr Index forward_blocks = 8 * 132, backward_blocks = 4 * 132;  // blocks that an H100 holds at once with 64 and with 128 registers per thread
constexpr Index least_segment = 32, most_segment = 512;               // limits of a segment in tokens
template <class T>
constexpr int channels_of = sizeof(T) > 2 ? 2 : 4;  // channels per thread

// Inputs of all sequences at any token t: x for t >= 0, `before` for the tokens before this call, and zeros before
// that.
template <class T>
struct History {
  Global<const T> x;
  Global<const T> before;                // inputs before this call, (B (K-1), C), or empty
  Global<const std::int32_t> positions;  // positions of tokens in their documents, (B T), or empty
  Index seq_length, conv_kernel, batch;

  GYR_FUNCTION Index channels() const { return x.columns(); }
  // Tokens before token t of sequence b that belong to its document.
  GYR_DEVICE int reach(Index b, Index t) const { return positions ? positions.load(b * seq_length + t) : std::numeric_limits<int>::max(); }
  template <int N>
  GYR_DEVICE Pack<T, N> input(Index b, Index t, Index c) const {
    if (t >= 0) return x.template load_pack<N>(b * seq_length + t, c);
    if (before && t > -conv_kernel) return before.template load_pack<N>(b * (conv_kernel - 1) + t + conv_kernel - 1, c);
    return Pack<T, N>();
  }
};

// Sequence, segment and channels of a thread. Adjacent lanes have adjacent channels. The warps of a block have the same
// channels of adjacent segments.
template <int N>
struct Place {
  int unit, b, begin, end, channel;  // unit: index of the block's group of segments, counted through all sequences

  template <class T>
  GYR_DEVICE Place(const History<T>& h, int segment) {
    const int length = int(h.seq_length), tiles = int(ceil_div(h.channels(), Index(N) * warp_size)), segments = int(ceil_div(length, segment));
    unit = int(block_index() / tiles);
    const int mine = unit * warps + warp();
    b = mine / segments, begin = mine % segments * segment;
    end = b >= h.batch ? begin : begin + segment < length ? begin + segment : length;
    channel = (int(block_index() % tiles) * warp_size + lane()) * N;
  }
  template <class T>
  GYR_DEVICE bool empty(const History<T>& h) const {
    return begin == end || channel >= h.channels();
  }
  template <class T>
  GYR_DEVICE Index row(const History<T>& h) const {
    return Index(b) * h.seq_length + begin;
  }
};
// Tokens per segment. All blocks of the grid should be resident at once, since each segment has extra work at its begin
// and end.
template <class T>
int segment_of(const History<T>& h, Index blocks) {
  const Index units = std::max<Index>(blocks / ceil_div(h.channels(), Index(channels_of<T>) * warp_size), 1);
  const Index of_sequence = std::max<Index>(units * warps / h.batch, 1);
  return int(std::clamp(ceil_div(ceil_div(h.seq_length, of_sequence), Index(few)) * few, least_segment, most_segment));
}
template <class T>
Index units_of(const History<T>& h, Index segment) {
  return ceil_div(h.batch * ceil_div(h.seq_length, segment), Index(warps));
}
template <int N, class T>
Grid grid_of_segments(const History<T>& h, Index segment, int shared_bytes = 0) {
  return {units_of(h, segment) * ceil_div(h.channels(), Index(N) * warp_size), warps * warp_size, shared_bytes};
}

template <class A>
struct Weights {
  Global<const A> w, bias;  // w: weights, shape (C, K); bias: shape (C), or empty
  bool packed;  // true if the weights of a channel, and the biases of adjacent channels, can be loaded as packs

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
  // Weights of a channel, with zeros first for the unused taps.
  template <int taps>
  GYR_DEVICE Pack<A, taps> of_channel(Index channel, Index unused) const {
    if constexpr (taps == few)
      if (packed) return w.template load_pack<taps>(channel, 0);
    Pack<A, taps> v;
    for (int k = 0; k < taps; ++k) v.at[k] = k < unused ? A(0) : w.load(channel, k - unused);
    return v;
  }
};

// Window of N channels: their weights, with leading zeros, and the last `taps` inputs. The inputs are in a ring buffer:
// token j of every `taps` tokens writes slot j.
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
  GYR_DEVICE void put(int slot, const Held<T, N>& in) {
    const auto v = in.values();
    for (int i = 0; i < N; ++i) x[slot][i] = v.at[i];
  }
  // Ring-buffer slot of the input at tap k of token j.
  static constexpr GYR_DEVICE int slot(int j, int k) { return (j + 1 + k) % taps; }
  // Zeroes the inputs that are more than `reach` tokens before token j, which belong to an earlier document. Tokens
  // after j do not see them either.
  GYR_DEVICE void hide(int j, int reach) {
    GYR_UNROLL
    for (int k = 0; k < taps; ++k)
      if (taps - 1 - k > reach)
        for (int i = 0; i < N; ++i) x[slot(j, k)][i] = 0;
  }
  // Computes c, the convolution before SiLU, of token j.
  GYR_DEVICE void see(int j, A (&c)[N]) const {
    for (int i = 0; i < N; ++i) {
      c[i] = bias[i];
      GYR_UNROLL
      for (int k = 0; k < taps; ++k) c[i] += weight[k][i] * x[slot(j, k)][i];
    }
  }
};

template <class T, int taps, int N, bool through_silu>
GYR_KERNEL convolution_kernel(History<T> h, Weights<Acc<T>> w, int segment, Global<T> y) {
  const Place<N> at(h, segment);
  if (at.empty(h)) return;
  Strip<const T, N> x(h.x, at.row(h), at.channel);  // inputs of the segment; the first row is the next token to read
  Strip<T, N> out(y, at.row(h), at.channel);
  const int tokens = at.end - at.begin;
  Held<T, N> coming[depth];
  const auto read = [&](int j) {
    coming[j % depth] = x.load(0);
    x.move_down(1);
  };
  GYR_UNROLL
  for (int j = 0; j < depth; ++j)
    if (j < tokens) read(j);
  Window<T, taps, N> window(h, w, at);
  for (int first = 0; first < tokens; first += taps) {
    // usual: all `taps` tokens and the prefetched ones are in the segment, and their windows are within their document
    const auto take = [&](auto usual) {
      GYR_UNROLL
      for (int j = 0; j < taps; ++j) {
        const int t = first + j;
        if (!usual && t >= tokens) break;
        window.put(j, coming[j % depth]);
        if (usual || t + depth < tokens) read(j);
        if (!usual) window.hide(j, h.reach(at.b, at.begin + t));
        Acc<T> c[N];
        window.see(j, c);
        Pack<T, N> v;
        for (int i = 0; i < N; ++i) v.at[i] = T(through_silu ? silu(c[i]) : c[i]);
        out.store(0, v);
        out.move_down(1);
      }
    };
    if (first + taps + depth <= tokens && h.reach(at.b, at.begin + first + taps - 1) >= 2 * (taps - 1)) take(std::true_type());
    else take(std::false_type());
  }
}

// Gradients that a thread accumulates over a segment.
template <class T, int taps, int N>
struct Gradient {
  using A = Acc<T>;
  A x[taps][N] = {}, w[taps + 1][N] = {};  // gradients of the inputs in the window's ring buffer (x), and of the weights, then the bias (w)

  // Token j adds w(k) dc to dx of the input at its tap k, except for masked inputs.
  GYR_DEVICE void spread(const Window<T, taps, N>& window, int j, int reach, const A (&dc)[N]) {
    GYR_UNROLL
    for (int k = 0; k < taps; ++k)
      if (taps - 1 - k <= reach)
        for (int i = 0; i < N; ++i) x[window.slot(j, k)][i] += window.weight[k][i] * dc[i];
  }
  GYR_DEVICE void count(const Window<T, taps, N>& window, int j, const A (&dc)[N]) {
    for (int i = 0; i < N; ++i) {
      GYR_UNROLL
      for (int k = 0; k < taps; ++k) w[k][i] += dc[i] * window.x[window.slot(j, k)][i];
      w[taps][i] += dc[i];
    }
  }
  // Returns dx of the oldest input in the window of token j. It is complete, since no later token sees that input.
  GYR_DEVICE Pack<T, N> finished(int j) {
    Pack<T, N> out;
    for (int i = 0; i < N; ++i) out.at[i] = T(x[(j + 1) % taps][i]), x[(j + 1) % taps][i] = 0;
    return out;
  }
};

// Token t adds w(k) dc(t) to dx(t - (taps-1) + k). A row of dx is complete after the last token whose window includes
// it. Therefore dc of the next segment's tokens whose windows reach into this segment is computed here, too.
template <class T, int taps, int N, bool through_silu>
GYR_DEVICE void gradient_of_segment(const History<T>& h, const Place<N>& at, const Global<const T>& dy, const Weights<Acc<T>>& w, const Global<T>& dx,
                                    const Global<T>& dbefore, Gradient<T, taps, N>& sum) {
  // x and dy of the segment; the first row is the next token to read
  Strip<const T, N> x(h.x, at.row(h), at.channel), dout(dy, at.row(h), at.channel);
  Strip<T, N> din(dx, at.row(h), at.channel);  // dx of the segment; the first row is the next token to write
  const int inside = at.end - at.begin, after_end = int(h.seq_length) - at.end, tokens = inside + (after_end < taps - 1 ? after_end : taps - 1);
  Held<T, N> coming[depth], prefetched_dout[depth];
  const auto read = [&](int j) {
    coming[j % depth] = x.load(0), prefetched_dout[j % depth] = dout.load(0);
    x.move_down(1), dout.move_down(1);
  };
  GYR_UNROLL
  for (int j = 0; j < depth; ++j)
    if (j < tokens) read(j);
  Window<T, taps, N> window(h, w, at);
  for (int first = 0; first < inside + taps - 1; first += taps) {
    // usual: all tokens are in the segment, their windows are within their document, and each completes one dx of the
    // segment
    const auto take = [&](auto usual) {
      GYR_UNROLL
      for (int j = 0; j < taps; ++j) {
        const int t = first + j, done = t - (taps - 1);
        if (!usual && t >= inside + taps - 1) break;
        if (usual || t < tokens) {
          const auto d = prefetched_dout[j % depth].values();
          window.put(j, coming[j % depth]);
          if (t + depth < tokens) read(j);
          const int reach = usual ? taps : h.reach(at.b, at.begin + t);
          if (!usual) window.hide(j, reach);
          Acc<T> dc[N];
          window.see(j, dc);
          for (int i = 0; i < N; ++i) dc[i] = through_silu ? d.at[i] * silu_slope(dc[i]) : d.at[i];
          sum.spread(window, j, reach, dc);
          if (usual || t < inside) sum.count(window, j, dc);
        }
        const auto out = sum.finished(j);
        if (usual || done >= 0) din.store(0, out), din.move_down(1);
        else if (const Index before = at.begin + done; dbefore && before < 0 && before > -h.conv_kernel)
          dbefore.template store_pack<N>(at.b * (h.conv_kernel - 1) + before + h.conv_kernel - 1, at.channel, out);
      }
    };
    if (first > 0 && first + taps <= inside && h.reach(at.b, at.begin + first + taps - 1) >= 2 * (taps - 1)) take(std::true_type());
    else take(std::false_type());
  }
}

// sums (groups of segments, (taps + 1) C): gradients of weights and bias, summed over the tokens of each block, warp by
// warp in a fixed order.
template <class T, int taps, int N, bool through_silu>
GYR_KERNEL_WITHIN(sizeof(T) == 2 && taps == few ? 128 : 224)
convolution_backward_kernel(History<T> h, Global<const T> dy, Weights<Acc<T>> w, int segment, Global<T> dx, Global<T> dbefore, Global<Acc<T>> sums) {
  using A = Acc<T>;
  const Place<N> at(h, segment);
  Gradient<T, taps, N> sum;
  if (!at.empty(h)) gradient_of_segment<T, taps, N, through_silu>(h, at, dy, w, dx, dbefore, sum);
  const Shared<Pack<A, N>> storage;
  GYR_UNROLL
  for (int k = 0; k <= taps; ++k) {
    Pack<A, N> mine;
    for (int i = 0; i < N; ++i) mine.at[i] = sum.w[k][i];
    storage.store((warp() * (taps + 1) + k) * warp_size + lane(), mine);
  }
  sync_block();
  if (at.channel >= h.channels()) return;
  for (int k = warp(); k <= taps; k += warps) {
    Pack<A, N> total = {};
    for (int from = 0; from < warps; ++from) {
      const auto more = storage.load((from * (taps + 1) + k) * warp_size + lane());
      for (int i = 0; i < N; ++i) total.at[i] += more.at[i];
    }
    sums.template store_pack<N>(at.unit, k * h.channels() + at.channel, total);
  }
}

// Adds the sums of all blocks to dw(j,k) and dbias(j).
template <class A>
GYR_KERNEL add_weights_kernel(Index channels, Index taps, Index conv_kernel, Global<const A> sums, Global<A> dw, Global<A> dbias) {
  const Index c = block_index() * warp_size + lane(), j = c % channels, k = c / channels, at = k - (taps - conv_kernel);
  const A total = sum_of_blocks(sums, c, Shared<A>());
  if (warp() > 0 || c >= sums.columns() || at < 0) return;
  if (k == taps && dbias) dbias.store(j, dbias.load(j) + total);
  else if (k < taps && dw) dw.store(j, at, dw.load(j, at) + total);
}

// Copies the last `tokens` inputs of each sequence to `after`, in ascending order, because `after` may be the memory of
// `before`.
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

// Views (B, K-1, C) as (B (K-1), C). The view is empty if x is empty.
template <class T>
Global<T> rows_of(const Tensor3<T>& x) {
  if (!x.data()) return {};
  return Matrix<T>(x.data(), x.extent(0) * x.extent(1), x.extent(2), x.extent(2));
}

// Calls f(taps, N, silu), where N channels form a pack: taps = 16 and N = 1 for long kernels, otherwise taps = 4.
template <class T, int N, class F, class... X>
void with_window(Index conv_kernel, ConvolutionEnd end, const F& f, const Global<X>&... tensors) {
  const auto with_end = [&](auto taps, auto n) {
    if (end == ConvolutionEnd::silu) f(taps, n, std::true_type());
    else f(taps, n, std::false_type());
  };
  if (conv_kernel > few) with_end(std::integral_constant<int, largest_conv_kernel>(), std::integral_constant<int, 1>());
  else with_packs_of<N>([&](auto n) { with_end(std::integral_constant<int, few>(), n); }, tensors...);
}

}  // namespace

template <class T>
void convolution(Device& dev, Index batch, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor3<const T> before,
                 Matrix<T> y, const Documents& documents, ConvolutionEnd end) {
  if (dev.dry_run()) return;
  const Index K = w.extent(1);
  const History<T> history{x, rows_of(before), documents.positions, x.rows / batch, K, batch};
  const int segment = segment_of(history, forward_blocks);
  const Global<T> out(y);
  with_window<T, channels_of<T>>(
      K, end,
      [&](auto taps, auto n, auto silu) {
        launch(dev, "convolution", grid_of_segments<n>(history, segment), convolution_kernel<T, taps, n, silu>, history,
               Weights<Acc<T>>::template of<taps, n>(w, bias), segment, out);
      },
      history.x, history.before, out);
}

template <class T>
void convolution_backward(Device& dev, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx, Tensor2<Acc<T>> dw, Tensor1<Acc<T>> dbias, Tensor3<T> dbefore,
                          const Documents& documents, ConvolutionEnd end) {
  using A = Acc<T>;
  const Index C = x.columns, K = w.extent(1), seq_length = x.rows / batch;
  const History<T> history{x, rows_of(before), documents.positions, seq_length, K, batch};
  const int segment = segment_of(history, backward_blocks);
  const Global<const T> dout(dy);
  const Global<T> din(dx), dinput = rows_of(dbefore);
  with_window<T, channels_of<T>>(
      K, end,
      [&](auto taps, auto n, auto silu) {
        const Global<A> sums(dev.scratch.tensor<A>(units_of(history, segment), (taps + 1) * C));
        if (dev.dry_run()) return;
        const int storage = warps * (taps + 1) * warp_size * n * int(sizeof(A));
        launch(dev, "convolution_backward", grid_of_segments<n>(history, segment, storage), convolution_backward_kernel<T, taps, n, silu>, history, dout,
               Weights<A>::template of<taps, n>(w, bias), segment, din, dinput, sums);
        launch(dev, "convolution_backward", grid_of_sums(Global<const A>(sums)), add_weights_kernel<A>, C, Index(taps), K, Global<const A>(sums), dw,
               dbias);
      },
      history.x, history.before, dout, din, dinput);
}

template <class T>
void convolution_tail(Device& dev, Index batch, Matrix<const T> x, Tensor3<const T> before, Tensor3<T> after) {
  launch(dev, "convolution_tail", {batch, usual_threads}, tail_kernel<T>, x.rows / batch, Index(after.extent(1)), x, rows_of(before), rows_of(after));
}

GYR_SCALARS(GYR_CONVOLUTION)

}  // namespace gyr::backend
