// SPDX-License-Identifier: BSD-3-Clause
// Benchmarks of attention, the SSD scan, convolution and RoPE at the shapes of input/falcon-h1-73m.yaml. Flops are
// algorithmic: the causal half of attention, complete chunks of the scan, no recomputation. Bytes are those of the
// operands. Seconds are those of the fastest pass.
#include "kernels/ops/attention.hpp"

#include <limits>
#include <vector>

#include "kernels/ops/convolution.hpp"
#include "kernels/ops/rope.hpp"
#include "kernels/ops/ssd.hpp"
#include "regression/bench/machine.hpp"

namespace gyr {
namespace {

constexpr Index tokens = 1024, document_tokens = 128;
constexpr AttentionShape attention_shape{1, tokens, tokens, 4, 2, 64, 64};
constexpr SsdShape ssd_shape{1, tokens, 12, 1, 64, 128, 128, 0, std::numeric_limits<double>::infinity()};
constexpr Index conv_channels = 1024, conv_kernel = 4;

// Memory and a device for one benchmark.
struct Bench {
  Device dev{false, Index(1) << 28};
  Arena memory{Memory::activations, Index(1) << 30};

  template <class T>
  Tensor2<T> filled(Index rows, Index columns) {
    const auto x = memory.tensor<T>(rows, columns);
    std::uint32_t s = 1;
    for (Index i = 0; i < rows * columns; ++i) x.data()[i] = T(float(int(s = s * 1664525u + 1013904223u) >> 8) * 0x1p-23f);
    return x;
  }
};

// Fraction of the time spent in each kernel, e.g. "gemm 0.71 attention 0.29 ".
std::string time_fractions(const Device& dev) {
  double all = 0;
  for (const Work& w : dev.work()) all += w.seconds;
  std::string text;
  for (const Work& w : dev.work()) text += fmt::format("{} {:.2f} ", w.kernel, w.seconds / all);
  return text;
}

// Runs `body` as often as the benchmark library asks for. The machine's own rates are measured before and after.
void report(benchmark::State& state, Bench& ground, double flops, double bytes, const auto& body) {
  const bench::Machine before = bench::Machine::measured(ground.dev, ground.memory);
  body();
  ground.dev.clear_work();
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) best = std::min(best, bench::seconds_of(body));
  state.SetLabel(time_fractions(ground.dev));
  bench::report(state, better(before, bench::Machine::measured(ground.dev, ground.memory)), flops, bytes, best);
}

// Attention over the full sequence, or over packed documents of `document` tokens each.
template <class T>
struct AttentionBench : Bench {
  using A = Acc<T>;
  Index document;
  std::vector<std::int32_t> positions;
  Mask mask;
  explicit AttentionBench(Index document = tokens) : document(document) {
    if (document == tokens) return;
    for (Index t = 0; t < tokens; ++t) positions.push_back(std::int32_t(t % document));
    mask.documents = {Tensor1<const std::int32_t>(positions.data(), tokens), positions};
  }
  AttentionShape s = attention_shape;
  Tensor2<T> q = filled<T>(tokens, s.num_heads*s.head_dim), k = filled<T>(tokens, s.num_kv_heads*s.head_dim),
             v = filled<T>(tokens, s.num_kv_heads*s.head_dim);
  Tensor2<T> out = filled<T>(tokens, s.num_heads*s.head_dim), dout = filled<T>(tokens, s.num_heads*s.head_dim);
  AttentionState<A> state{filled<A>(tokens, s.num_heads* s.head_dim), filled<A>(tokens, s.num_heads), filled<A>(tokens, s.num_heads)};
  Tensor2<A> lse = filled<A>(tokens, s.num_heads), delta = filled<A>(tokens, s.num_heads);
  Tensor2<A> dq = filled<A>(tokens, s.num_heads*s.head_dim), dk = filled<A>(tokens, s.num_kv_heads*s.head_dim),
             dv = filled<A>(tokens, s.num_kv_heads*s.head_dim);
  double flops = 2.0 * tokens * document * s.num_heads * s.head_dim, bytes = sizeof(T) * 4.0 * tokens * s.num_heads * s.head_dim;

  void forward() {
    attention<T>(dev, s, mask, 0.125, Matrix<const T>(q), Matrix<const T>(k), Matrix<const T>(v), Carry::fresh, state);
    attention_finish<T>(dev, s, state, out, lse);
  }
  void backward() {
    attention_delta<T>(dev, s, dout, out, delta);
    attention_backward<T>(dev, s, mask, 0.125, Matrix<const T>(q), Matrix<const T>(k), Matrix<const T>(v), dout, lse, delta, Matrix<A>(dq),
                          Matrix<A>(dk), Matrix<A>(dv));
  }
};

template <class T>
void attention_forward(benchmark::State& state) {
  AttentionBench<T> bench;
  report(state, bench, bench.flops, bench.bytes, [&] { bench.forward(); });
}
template <class T>
void attention_backward(benchmark::State& state) {
  AttentionBench<T> bench;
  bench.forward();
  report(state, bench, 2 * bench.flops, 2 * bench.bytes, [&] { bench.backward(); });
}
template <class T>
void attention_packed_forward(benchmark::State& state) {
  AttentionBench<T> bench(document_tokens);
  report(state, bench, bench.flops, bench.bytes, [&] { bench.forward(); });
}
template <class T>
void attention_packed_backward(benchmark::State& state) {
  AttentionBench<T> bench(document_tokens);
  bench.forward();
  report(state, bench, 2 * bench.flops, 2 * bench.bytes, [&] { bench.backward(); });
}

template <class T>
struct SsdBench : Bench {
  using A = Acc<T>;
  SsdShape s = ssd_shape;
  Index channels = s.num_heads * s.head_dim, state_size = channels * s.state_size;
  Tensor2<T> x = filled<T>(tokens, channels), b = filled<T>(tokens, s.state_size), c = filled<T>(tokens, s.state_size),
             dt = filled<T>(tokens, s.num_heads);
  Tensor2<T> y = filled<T>(tokens, channels), dy = filled<T>(tokens, channels);
  Tensor2<T> dx = filled<T>(tokens, channels), db = filled<T>(tokens, s.state_size), dc = filled<T>(tokens, s.state_size),
             ddt = filled<T>(tokens, s.num_heads);
  Tensor2<A> weights = filled<A>(3, s.num_heads), dweights = filled<A>(3, s.num_heads);
  SsdSaved<A> saved{filled<A>(tokens, s.num_heads), Tensor3<A>(filled<A>(s.chunks(), state_size).data(), 1, s.chunks(), state_size)};
  Tensor2<A> last = filled<A>(1, state_size);
  double flops = tokens * (2.0 * s.chunk_size * (s.num_groups * s.state_size + channels) + 4.0 * channels * s.state_size);
  double bytes = sizeof(T) * tokens * 2.0 * (channels + s.num_groups * s.state_size);

  SsdInput<T> input() const { return {Matrix<const T>(x), Matrix<const T>(b), Matrix<const T>(c), Matrix<const T>(dt)}; }
  template <class X>
  Tensor1<X> row(const Tensor2<A>& w, Index i) const {
    return Tensor1<X>(&w(i, 0), s.num_heads);
  }
  SsdWeights<A> weight() const { return {row<const A>(weights, 0), row<const A>(weights, 1), row<const A>(weights, 2)}; }
  void forward() { ssd<T>(dev, s, input(), weight(), {}, y, saved, last); }
  void backward() {
    ssd_backward<T>(dev, s, input(), weight(), saved, dy, {}, {dx, db, dc, ddt}, {row<A>(dweights, 0), row<A>(dweights, 1), row<A>(dweights, 2)}, {});
  }
};

template <class T>
void ssd_forward(benchmark::State& state) {
  SsdBench<T> bench;
  report(state, bench, bench.flops, bench.bytes, [&] { bench.forward(); });
}
template <class T>
void ssd_backward(benchmark::State& state) {
  SsdBench<T> bench;
  bench.forward();
  report(state, bench, 2 * bench.flops, 2 * bench.bytes, [&] { bench.backward(); });
}

template <class T>
struct ConvolutionBench : Bench {
  using A = Acc<T>;
  Tensor2<T> x = filled<T>(tokens, conv_channels), y = filled<T>(tokens, conv_channels), dy = filled<T>(tokens, conv_channels);
  Tensor2<A> w = filled<A>(conv_channels, conv_kernel), dw = filled<A>(conv_channels, conv_kernel), bias = filled<A>(1, conv_channels),
             dbias = filled<A>(1, conv_channels);
  double elements = double(tokens) * conv_channels;
};

template <class T>
void convolution_forward(benchmark::State& state) {
  ConvolutionBench<T> b;
  report(state, b, 2.0 * conv_kernel * b.elements, 2.0 * sizeof(T) * b.elements,
         [&] { convolution<T>(b.dev, 1, Matrix<const T>(b.x), b.w, flat(b.bias), {}, Matrix<T>(b.y)); });
}
template <class T>
void convolution_backward(benchmark::State& state) {
  ConvolutionBench<T> b;
  report(state, b, 4.0 * conv_kernel * b.elements, 3.0 * sizeof(T) * b.elements, [&] {
    convolution_backward<T>(b.dev, 1, Matrix<const T>(b.dy), Matrix<const T>(b.x), b.w, flat(b.bias), {}, Matrix<T>(b.y), b.dw, flat(b.dbias), {});
  });
}

template <class T>
void rope_forward(benchmark::State& state) {
  using A = Acc<T>;
  Bench b;
  const auto x = b.filled<T>(tokens, 256), y = b.filled<T>(tokens, 256);
  const Rotation<A> table{b.filled<A>(tokens, 32), b.filled<A>(tokens, 32)};
  const Tensor1<std::int32_t> positions = b.dev.scratch.template tensor<std::int32_t>(tokens);
  for (Index r = 0; r < tokens; ++r) positions(r) = std::int32_t(r);
  report(state, b, 3.0 * tokens * 256, 2.0 * sizeof(T) * tokens * 256,
         [&] { rope<T, T>(b.dev, Rotate::forward, 4, 1, table, positions, Matrix<const T>(x), Matrix<T>(y)); });
}

#define GYR_BENCH(name)                  \
  BENCHMARK(name<float>)->UseRealTime(); \
  BENCHMARK(name<bf16>)->UseRealTime();
GYR_BENCH(attention_forward)
GYR_BENCH(attention_backward)
GYR_BENCH(attention_packed_forward)
GYR_BENCH(attention_packed_backward)
GYR_BENCH(ssd_forward)
GYR_BENCH(ssd_backward)
GYR_BENCH(convolution_forward)
GYR_BENCH(convolution_backward)
GYR_BENCH(rope_forward)

}  // namespace
}  // namespace gyr
