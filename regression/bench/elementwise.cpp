// SPDX-License-Identifier: BSD-3-Clause
// Benchmarks of memory-bound kernels (norms, gates, residual add, embedding, AdamW, cross-entropy). Flops and bytes are
// those that the device counts. The target is of_copy >= 0.7, the fraction of the bandwidth of a plain copy. Operands
// are larger than any cache: each call uses the next rows of tall tensors, as a training step does when it walks
// through its layers.
#include "kernels/ops/elementwise.hpp"
#include "kernels/device/random.hpp"
#include "kernels/ops/activation.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "kernels/ops/gate.hpp"
#include "kernels/ops/sum.hpp"
#include "kernels/ops/updates/weight_update.hpp"
#include "regression/bench/machine.hpp"

namespace {

using namespace gyr;

constexpr Index height = 1024;  // rows per call: tokens of a micro-batch
constexpr Index calls = 24;     // calls until the rows of a tensor are used again
constexpr Index all = calls * height;

struct Ground {
  Device dev{false, Index(1) << 24};
  Arena arena{Memory::activations, Index(1) << 30};

  template <class T>
  Tensor1<T> normal(Index n) {
    const auto x = arena.tensor<T>(n);
    const Stream stream(1, "bench");
    for (Index i = 0; i < n; ++i) x(i) = i < 4096 ? T(float(stream.normal(i))) : x(i - 4096);
    return x;
  }
  template <class T>
  Tensor2<T> normal(Index rows, Index columns) {
    return Tensor2<T>(normal<T>(rows * columns).data(), rows, columns);
  }
};

// Times kernel(first row), which must launch nothing else, and reports its rates next to those of the machine.
template <class Kernel>
void measure(benchmark::State& state, Ground& ground, const Kernel& kernel, Index rows = height) {
  for (Index i = 0; i < calls; ++i) kernel(i * rows);
  const bench::Machine before = bench::Machine::measured(ground.dev, ground.arena);
  ground.dev.clear_work();
  Index call = 0;
  const double seconds = bench::seconds_of([&] {
    for (auto _ : state) kernel(call++ % calls * rows);
  });
  double flops = 0, bytes = 0;
  for (const Work& w : ground.dev.work()) flops += w.flops, bytes += w.bytes;
  bench::report(state, better(before, bench::Machine::measured(ground.dev, ground.arena)), flops, bytes, seconds);
}

// Rows of one call, starting at row `first`.
template <class T>
Tensor2<T> part(const Tensor2<T>& x, Index first) {
  return rows(x, first, height);
}
template <class T>
Tensor1<T> part(const Tensor1<T>& x, Index first) {
  return rows(x, first, height);
}
template <class T>
Matrix<T> part(const Matrix<T>& x, Index first) {
  return x.block(first, height, 0, x.columns);
}

template <class T>
void rmsnorm_forward(benchmark::State& state) {
  Ground g;
  const Index width = state.range(0);
  const auto x = g.normal<T>(all, width), y = g.normal<T>(all, width);
  const auto w = g.normal<Acc<T>>(width), rstd = g.normal<Acc<T>>(all);
  measure(state, g, [&](Index i) { rmsnorm<T>(g.dev, part(x, i), w, 1e-5, part(y, i), part(rstd, i)); });
}

template <class T>
void rmsnorm_backward(benchmark::State& state) {
  Ground g;
  const Index width = state.range(0);
  const auto x = g.normal<T>(all, width), dy = g.normal<T>(all, width), dx = g.normal<T>(all, width);
  const auto w = g.normal<Acc<T>>(width), dw = g.normal<Acc<T>>(width), rstd = g.normal<Acc<T>>(all);
  measure(state, g, [&](Index i) { rmsnorm_backward<T>(g.dev, part(dy, i), part(x, i), w, part(rstd, i), Add::no, part(dx, i), dw); });
}

template <class T>
void swiglu_forward(benchmark::State& state) {
  Ground g;
  const Index width = state.range(0);
  const auto x = g.normal<T>(all, 2 * width), y = g.normal<T>(all, width);
  measure(state, g, [&](Index i) { glu<T>(g.dev, Activation::silu, part(x, i), 0.7, part(y, i)); });
}

template <class T>
void swiglu_backward(benchmark::State& state) {
  Ground g;
  const Index width = state.range(0);
  const auto x = g.normal<T>(all, 2 * width), dy = g.normal<T>(all, width), dx = g.normal<T>(all, 2 * width);
  measure(state, g, [&](Index i) { glu_backward<T>(g.dev, Activation::silu, part(dy, i), part(x, i), 0.7, part(dx, i)); });
}

// Operands of the gated norm as in the Mamba-2 mixer: y is contiguous, z is a range of columns of the projection.
template <class T>
struct Gated {
  explicit Gated(benchmark::State& state)
      : width(state.range(0)), wide(g.normal<T>(all, 3 * width)), out(g.normal<T>(all, width)), dout(g.normal<T>(all, width)),
        y(g.normal<T>(all, width)), z(columns(wide, 0, width)), dz(columns(wide, width, width)), w(g.normal<Acc<T>>(width)),
        dw(g.normal<Acc<T>>(width)), squares(g.normal<Acc<T>>(all, 1)), dots(g.normal<Acc<T>>(all, 1)) {
    fill<Acc<T>>(g.dev, flat(squares), double(width));
  }
  Ground g;
  Index width;
  Tensor2<T> wide, out, dout;
  Matrix<T> y, z, dz;
  Tensor1<Acc<T>> w, dw;
  Tensor2<Acc<T>> squares, dots;
};

template <class T>
void gate_forward(benchmark::State& state) {
  Gated<T> a(state);
  measure(state, a.g, [&](Index i) { gate<T>(a.g.dev, part(a.y, i), part(a.z, i), part(a.out, i)); });
}

template <class T>
void gate_backward(benchmark::State& state) {
  Gated<T> a(state);
  measure(state, a.g, [&](Index i) { gate_backward<T>(a.g.dev, part(a.dout, i), part(a.y, i), part(a.z, i), part(a.out, i), part(a.dz, i)); });
}

constexpr auto order = GateOrder::gate_first;

template <class T>
void gated_norm_statistics(benchmark::State& state) {
  Gated<T> a(state);
  measure(state, a.g, [&](Index i) { gated_norm_squares<T>(a.g.dev, order, part(a.y, i), part(a.z, i), part(a.squares, i)); });
}

template <class T>
void gated_norm_forward(benchmark::State& state) {
  Gated<T> a(state);
  measure(state, a.g,
          [&](Index i) { gated_norm<T>(a.g.dev, order, part(a.y, i), part(a.z, i), a.w, part(a.squares, i), a.width, 1e-5, part(a.out, i)); });
}

template <class T>
void gated_norm_dots(benchmark::State& state) {
  Gated<T> a(state);
  measure(state, a.g, [&](Index i) {
    gated_norm_dots<T>(a.g.dev, order, part(a.dout, i), part(a.y, i), part(a.z, i), a.w, part(a.squares, i), a.width, 1e-5, part(a.dots, i), a.dw);
  });
}

template <class T>
void gated_norm_backward(benchmark::State& state) {
  Gated<T> a(state);
  measure(state, a.g, [&](Index i) {
    gated_norm_backward<T>(a.g.dev, order, part(a.dout, i), part(a.y, i), part(a.z, i), a.w, part(a.squares, i), part(a.dots, i), a.width, 1e-5,
                           part(a.out, i), part(a.dz, i));
  });
}

template <class T>
void add_residual(benchmark::State& state) {
  Ground g;
  const Index n = state.range(0);
  const auto x = g.normal<T>(all * n), y = g.normal<T>(all * n);
  measure(state, g, [&](Index i) { add<T>(g.dev, rows(x, i * n, height * n), rows(y, i * n, height * n)); });
}

template <class T>
void fill_zero(benchmark::State& state) {
  Ground g;
  const Index n = state.range(0);
  const auto x = g.normal<T>(all * n);
  measure(state, g, [&](Index i) { fill<T>(g.dev, rows(x, i * n, height * n), 0); });
}

template <class S, class T>
void convert_columns(benchmark::State& state) {
  Ground g;
  const auto x = g.normal<S>(all, 2 * state.range(0));
  const auto y = g.normal<T>(all, state.range(0));
  measure(state, g, [&](Index i) { convert<S, T>(g.dev, part(columns(x, 0, state.range(0)), i), Matrix<T>(part(y, i))); });
}

template <class T>
void bias_and_scale(benchmark::State& state) {
  Ground g;
  const auto y = g.normal<T>(all, state.range(0));
  const auto bias = g.normal<Acc<T>>(state.range(0)), scale = g.normal<Acc<T>>(state.range(0));
  fill<Acc<T>>(g.dev, scale, 1);
  measure(state, g, [&](Index i) { bias_scale<T>(g.dev, bias, scale, Matrix<T>(part(y, i))); });
}

template <class T>
void bias_gradient(benchmark::State& state) {
  Ground g;
  const auto dy = g.normal<T>(all, state.range(0));
  const auto dbias = g.normal<Acc<T>>(state.range(0));
  measure(state, g, [&](Index i) { bias_backward<T>(g.dev, Matrix<T>(part(dy, i)), 1, dbias); });
}

// Token ids scattered over an embedding table of 32768 rows.
template <class T>
struct Table {
  explicit Table(benchmark::State& state)
      : tokens(g.arena.tensor<Token>(all)), table(g.normal<T>(32768, state.range(0))), x(g.normal<T>(all, state.range(0))) {
    for (Index r = 0; r < all; ++r) tokens(r) = Token(r * 7919 % 32768);
  }
  Ground g;
  Tensor1<Token> tokens;
  Tensor2<T> table, x;
};

template <class T>
void embedding_forward(benchmark::State& state) {
  Table<T> a(state);
  measure(state, a.g, [&](Index i) { embedding<T>(a.g.dev, part(a.tokens, i), a.table, 0, 2, part(a.x, i)); });
}

template <class T>
void embedding_gradient(benchmark::State& state) {
  Table<T> a(state);
  const auto dtable = a.g.template normal<Acc<T>>(32768, state.range(0));
  measure(state, a.g, [&](Index i) { embedding_backward<T>(a.g.dev, part(a.tokens, i), part(a.x, i), 0, 2, -1, dtable); });
}

template <class T>
void adamw_step(benchmark::State& state) {
  using A = Acc<T>;
  Ground g;
  const Index n = state.range(0);
  const auto gradient = g.normal<A>(n), m = g.normal<A>(n), v = g.normal<A>(n);
  const auto master = std::is_same_v<T, A> ? Tensor1<A>() : g.normal<A>(n);
  const auto w = g.normal<T>(n);
  fill<A>(g.dev, v, 1);
  const auto step = g.normal<A>(update_values);
  measure(state, g, [&](Index) { update_weights<T>(g.dev, AdamW{0.9, 0.95, 1e-8}, step, gradient, {m, v}, master, w); });
}

void sum_of_squares_f32(benchmark::State& state) {
  Ground g;
  const auto x = g.normal<float>(state.range(0));
  measure(state, g, [&](Index) { benchmark::DoNotOptimize(sum_of_squares<float>(g.dev, x)); });
}

// The part of the output head that one vocabulary-parallel rank has: rows of logits, their maxima, sums of
// exponentials, and labels.
struct Head {
  explicit Head(benchmark::State& state)
      : logits(g.normal<float>(state.range(0), state.range(1))), top(g.normal<float>(state.range(0))), sums(g.normal<float>(2, state.range(0))),
        labels(g.arena.tensor<Token>(state.range(0))), vocab_size(state.range(1)) {
    for (Index r = 0; r < state.range(0); ++r) labels(r) = Token(r * 7919 % vocab_size);
    fill<float>(g.dev, top, 4);
    fill<float>(g.dev, flat(sums), double(vocab_size));
  }
  Ground g;
  Tensor2<float> logits;
  Tensor1<float> top;
  Tensor2<float> sums;
  Tensor1<Token> labels;
  Index vocab_size;
};

void logits_maximum(benchmark::State& state) {
  Head a(state);
  measure(state, a.g, [&](Index) { logits_top<float>(a.g.dev, a.logits, a.vocab_size, a.top); });
}

void logits_exponentials(benchmark::State& state) {
  Head a(state);
  measure(state, a.g, [&](Index) { logits_sums<float>(a.g.dev, a.logits, a.vocab_size, a.top, a.labels, 0, a.sums); });
}

template <class T>
void logits_gradient(benchmark::State& state) {
  Head a(state);
  const auto dlogits = a.g.normal<T>(a.logits.extent(0), a.vocab_size);
  measure(state, a.g, [&](Index) { cross_entropy_backward<T>(a.g.dev, a.logits, a.vocab_size, a.top, a.sums, a.labels, 0, {}, {}, dlogits); });
}

#define ROWS(kernel)                                      \
  BENCHMARK_TEMPLATE(kernel, float)->Arg(512)->Arg(1024); \
  BENCHMARK_TEMPLATE(kernel, bf16)->Arg(1024)
ROWS(rmsnorm_forward);
ROWS(rmsnorm_backward);
ROWS(swiglu_forward);
ROWS(swiglu_backward);
ROWS(gate_forward);
ROWS(gate_backward);
ROWS(gated_norm_statistics);
ROWS(gated_norm_forward);
ROWS(gated_norm_dots);
ROWS(gated_norm_backward);
ROWS(add_residual);
ROWS(fill_zero);
ROWS(bias_and_scale);
ROWS(bias_gradient);
ROWS(embedding_forward);
ROWS(embedding_gradient);
BENCHMARK_TEMPLATE(convert_columns, float, float)->Arg(1024);
BENCHMARK_TEMPLATE(convert_columns, float, bf16)->Arg(1024);
BENCHMARK_TEMPLATE(convert_columns, bf16, float)->Arg(1024);
BENCHMARK_TEMPLATE(adamw_step, float)->Arg(8 << 20);
BENCHMARK_TEMPLATE(adamw_step, bf16)->Arg(8 << 20);
BENCHMARK(sum_of_squares_f32)->Arg(8 << 20);
BENCHMARK(logits_maximum)->Args({256, 32768});
BENCHMARK(logits_exponentials)->Args({256, 32768});
BENCHMARK_TEMPLATE(logits_gradient, float)->Args({256, 32768});
BENCHMARK_TEMPLATE(logits_gradient, bf16)->Args({256, 32768});
#undef ROWS

}  // namespace
