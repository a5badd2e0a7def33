// SPDX-License-Identifier: BSD-3-Clause
// Rates of kernels in bf16 at the shapes of input/falcon-h1-1.5b.yaml, relative to what the device reaches in the same run in a large GEMM and in a
// device-to-device copy. Flops and bytes are algorithmic, as the device counts them. Seconds are per call, in the median window.
//   device_rates [length=4096] [sequences=2] [windows=7] [seconds=0.05] [small] [only=NAME,...]
// small: tiny shapes, for emulated devices. only: kernels whose names begin with one of these, and the two reference kernels `copy` and `gemm_size`.
// Prints a table, and a line of JSON for each kernel on standard error. peer.py has the same names for PyTorch's kernels.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

#include "kernels/base/threads.hpp"
#include "kernels/device/random.hpp"
#include "kernels/ops/activation.hpp"
#include "kernels/ops/attention.hpp"
#include "kernels/ops/convolution.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/embedding.hpp"
#include "kernels/ops/gate.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/grouped_gemm.hpp"
#include "kernels/ops/head_norm.hpp"
#include "kernels/ops/host_values.hpp"
#include "kernels/ops/layernorm.hpp"
#include "kernels/ops/rmsnorm.hpp"
#include "kernels/ops/rope.hpp"
#include "kernels/ops/ssd.hpp"
#include "kernels/ops/sum.hpp"
#include "kernels/ops/updates/weight_update.hpp"
#include "src/base/table.hpp"

namespace gyr {
namespace {

struct Extents {
  Index length = 4096, sequences = 2;
  Index hidden = 2048, wide = 4608, heads = 8, kv_heads = 2, head_dim = 128;
  Index ssm_heads = 48, ssm_head_dim = 64, state = 256, chunk = 128;
  Index experts = 64, expert_wide = 768, top_k = 8;
  Index vocab = 65536, logits = 1024, gemm_size = 8192, parameters = Index(1) << 27, copied = Index(1) << 27;
  int windows = 7;
  double seconds = 0.05;  // minimum length of a window
  std::string only;       // comma-separated beginnings of kernel names; empty: all kernels

  bool wants(const std::string& name) const {
    if (only.empty() || name == "copy" || name == "product") return true;
    std::istringstream words(only);
    for (std::string begin; std::getline(words, begin, ',');)
      if (name.starts_with(begin)) return true;
    return false;
  }
  Index tokens() const { return sequences * length; }
  Index inner() const { return ssm_heads * ssm_head_dim; }
  void shrink() {
    length = 160, sequences = 1, hidden = 64, wide = 96, heads = 4, kv_heads = 2, head_dim = 64, ssm_heads = 2, ssm_head_dim = 32, state = 32,
    chunk = 64;
    experts = 4, expert_wide = 24, top_k = 2, vocab = 300, logits = 16, gemm_size = 96, parameters = 4096, copied = 1 << 16, windows = 1, seconds = 0;
  }
};

// Tensors of a case, and the values that they are filled with before it is timed.
class Ground {
 public:
  explicit Ground(Arena arena) : arena_(std::move(arena)) {}
  template <class T>
  Tensor2<T> normal(Index rows, Index columns, double scale = 1) {
    const auto x = arena_.tensor<T>(rows, columns);
    fillers_.push_back([x, scale] { fill_in(flat(x), scale); });
    return x;
  }
  template <class T>
  Tensor1<T> constant(Index n, double value) {
    const auto x = arena_.tensor<T>(n);
    fillers_.push_back([x, value] {
      HostValues<T> values(x);
      for (Index i = 0; i < Index(x.span()); ++i) values(i) = T(float(value));
      values.put();
    });
    return x;
  }
  Tensor1<Token> tokens(Index n, Index vocab) {
    const auto x = arena_.tensor<Token>(n);
    fillers_.push_back([x, vocab] {
      HostValues<Token> values(x);
      for (Index i = 0; i < Index(x.span()); ++i) values(i) = Token(i * 7919 % vocab);
      values.put();
    });
    return x;
  }
  void fill() const {
    for (const auto& filler : fillers_) filler();
  }
  Index high_water() const { return arena_.high_water(); }

 private:
  // Normally distributed values from a periodic table. Constant values are avoided, because a GEMM of equal values
  // takes less power and hence less time.
  template <class T>
  static void fill_in(const Tensor1<T>& x, double scale) {
    constexpr Index period = 65521;
    static const std::vector<float> table = [] {
      std::vector<float> t(period);
      const Stream stream(1, "rates");
      for (Index i = 0; i < period; ++i) t[std::size_t(i)] = float(stream.normal(i));
      return t;
    }();
    const Index n = x.span();
    HostValues<T> values(x);
    for (Index i = 0; i < std::min(n, period); ++i) values(i) = T(float(scale) * table[std::size_t(i)]);
    for (Index done = period; done < n; done += std::min(done, n - done)) std::copy_n(&values(0), std::min(done, n - done), &values(done));
    values.put();
  }
  Arena arena_;
  std::vector<std::function<void()>> fillers_;
};

// A benchmark case: only `run` is timed; `prepare` runs once before it.
struct Case {
  std::function<void(Device&)> run, prepare = [](Device&) {};
};
using Maker = std::function<Case(Ground&, const Extents&)>;

// The same case with cuDNN's attention, if cuDNN supports the case.
Maker by_cudnn(const Maker& make) {
  struct Asked {
    Asked() { setenv("GYR_CUDA_ATTENTION", "cudnn", 1); }
    ~Asked() { unsetenv("GYR_CUDA_ATTENTION"); }
  };
  return [make](Ground& g, const Extents& e) {
    const Case c = make(g, e);
    const auto asked = [](const std::function<void(Device&)>& work) {
      return [work](Device& dev) {
        const Asked for_cudnn;
        work(dev);
      };
    };
    return Case{asked(c.run), asked(c.prepare)};
  };
}

struct Rate {
  double seconds, flops, bytes;  // seconds, flops and bytes of one call
};

double seconds_of_window(Device& dev, const Case& c, const Extents& e) {
  using Clock = std::chrono::steady_clock;
  dev.fence();
  const auto start = Clock::now();
  for (int calls = 1, done = 0;; calls *= 2) {
    for (; done < calls; ++done) c.run(dev);
    dev.fence();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds >= e.seconds) return seconds / done;
  }
}

Rate measured(const Maker& make, const Extents& e) {
  Ground counted(Arena::dry_run(Memory::activations));
  const Case rehearsed = make(counted, e);
  Device dry(true, 0);
  rehearsed.prepare(dry);
  dry.clear_work();
  rehearsed.run(dry);
  Rate rate{0, 0, 0};
  for (const Work& w : dry.work()) rate.flops += w.flops, rate.bytes += w.bytes;

  Ground ground(Arena(Memory::activations, counted.high_water()));
  const Case c = make(ground, e);
  ground.fill();
  Device dev(false, dry.scratch.high_water());
  c.prepare(dev);
  c.run(dev);
  std::vector<double> windows;
  for (int i = 0; i < e.windows; ++i) windows.push_back(seconds_of_window(dev, c, e));
  std::nth_element(windows.begin(), windows.begin() + e.windows / 2, windows.end());
  rate.seconds = windows[std::size_t(e.windows / 2)];
  return rate;
}

Case copy_case(Ground& g, const Extents& e) {
  const auto from = g.normal<float>(1, e.copied), to = g.normal<float>(1, e.copied);
  return {[=](Device& dev) {
    const Index bytes = from.span() * Index(sizeof(float));
    if (auto launch = dev.launch("copy", 0, 2.0 * double(bytes))) backend::copy_on_device(dev.queue, from.data(), to.data(), bytes);
  }};
}

template <class T>
Case gemm_case(Ground& g, const Extents& e) {
  const Index n = e.gemm_size;
  const auto a = g.normal<T>(n, n), b = g.normal<T>(n, n), c = g.normal<T>(n, n);
  return {[=](Device& dev) { gemm<T>(dev, MatrixOp::none, Matrix<const T>(a), MatrixOp::transpose, Matrix<const T>(b), Matrix<T>(c)); }};
}

// The largest GEMM of a layer: gate and up projection of SwiGLU. The weight gradient is accumulated in float.
Case layer_forward(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), e.hidden), w = g.normal<bf16>(2 * e.wide, e.hidden), y = g.normal<bf16>(e.tokens(), 2 * e.wide);
  return {[=](Device& dev) { linear<bf16>(dev, Matrix<const bf16>(x), Matrix<const bf16>(w), Matrix<bf16>(y)); }};
}
Case layer_backward(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), e.hidden), w = g.normal<bf16>(2 * e.wide, e.hidden), dy = g.normal<bf16>(e.tokens(), 2 * e.wide);
  const auto dx = g.normal<bf16>(e.tokens(), e.hidden);
  const auto dw = g.normal<float>(2 * e.wide, e.hidden);
  return {[=](Device& dev) {
    linear_backward_input<bf16>(dev, Matrix<const bf16>(dy), Matrix<const bf16>(w), Matrix<bf16>(dx));
    linear_backward_weight<bf16>(dev, Matrix<const bf16>(dy), Matrix<const bf16>(x), Matrix<float>(dw));
  }};
}

// Gate and up projection of experts with equally many rows. By default one grouped GEMM covers all experts; `separate`
// uses one library GEMM per expert, for which the host waits for the row counts.
struct ExpertsCase {
  ExpertsCase(Ground& g, const Extents& e, Index rows, Index experts, bool separate)
      : x(g.normal<bf16>(rows, e.hidden)), y(g.normal<bf16>(rows, 2 * e.expert_wide)), dx(g.normal<bf16>(rows, e.hidden)),
        count(g.constant<std::int32_t>(experts, double(rows / experts))), w{{}, 2 * e.expert_wide, e.hidden}, dw{{}, 2 * e.expert_wide, e.hidden},
        even(separate ? std::numeric_limits<Index>::max() : rows / experts) {
    for (Index i = 0; i < experts; ++i) w.data.push_back(g.normal<bf16>(2 * e.expert_wide, e.hidden).data());
  }
  RowGroups groups(const Device& dev) const {
    const Index each = x.extent(0) / count.extent(0);
    return {count, even, each, dev.dry_run() ? std::vector<Index>(count.extent(0), each) : std::vector<Index>()};
  }
  void forward(Device& dev) const { grouped_linear<bf16>(dev, groups(dev), x, w, y); }
  void backward(Device& dev) const {
    grouped_linear_backward_input<bf16>(dev, groups(dev), y, w, dx);
    grouped_linear_backward_weight<bf16>(dev, groups(dev), Matrix<const bf16>(y), x, dw);
  }
  Tensor2<bf16> x, y, dx;
  Tensor1<std::int32_t> count;
  GroupMatrices<const bf16> w;
  GroupMatrices<float> dw;
  Index even;
};
template <bool separate>
Case experts_forward(Ground& g, const Extents& e) {
  const ExpertsCase c(g, e, e.tokens() / e.experts * e.experts, e.experts, separate);
  return {[=](Device& dev) { c.forward(dev); }};
}
template <bool separate>
Case experts_backward(Ground& g, const Extents& e) {
  ExpertsCase c(g, e, e.tokens() / e.experts * e.experts, e.experts, separate);
  for (Index i = 0; i < e.experts; ++i) c.dw.data.push_back(g.normal<float>(2 * e.expert_wide, e.hidden).data());
  return {[=](Device& dev) { c.backward(dev); }};
}
// Experts of one generated token: `top_k` experts with one row each.
template <bool separate>
Case experts_token(Ground& g, const Extents& e) {
  const ExpertsCase c(g, e, e.top_k, e.top_k, separate);
  return {[=](Device& dev) { c.forward(dev); }};
}

struct AttentionCase {
  using M = Matrix<const bf16>;
  AttentionCase(Ground& g, const Extents& e)
      : shape{e.sequences, e.length, e.length, e.heads, e.kv_heads, e.head_dim, e.head_dim}, scale(1 / std::sqrt(double(e.head_dim))),
        q(g.normal<bf16>(e.tokens(), e.heads * e.head_dim)), k(g.normal<bf16>(e.tokens(), e.kv_heads * e.head_dim)),
        v(g.normal<bf16>(e.tokens(), e.kv_heads * e.head_dim)), out(g.normal<bf16>(e.tokens(), e.heads * e.head_dim)),
        dout(g.normal<bf16>(e.tokens(), e.heads * e.head_dim)), state{g.normal<float>(e.tokens(), e.heads * e.head_dim),
                                                                      g.normal<float>(e.tokens(), e.heads), g.normal<float>(e.tokens(), e.heads)},
        delta(g.normal<float>(e.tokens(), e.heads)) {}
  void forward(Device& dev) const {
    attention<bf16>(dev, shape, Mask{}, scale, M(q), M(k), M(v), Carry::fresh, state);
    attention_finish<bf16>(dev, shape, state, out, state.m);
  }
  AttentionShape shape;
  double scale;
  Tensor2<bf16> q, k, v, out, dout;
  AttentionState<float> state;
  Tensor2<float> delta;
};
Case attention_forward(Ground& g, const Extents& e) {
  const AttentionCase a(g, e);
  return {[=](Device& dev) { a.forward(dev); }};
}
Case attention_ends(Ground& g, const Extents& e) {
  const AttentionCase a(g, e);
  const auto lse = g.normal<float>(e.tokens(), e.heads);
  return {[=](Device& dev) { attention_finish<bf16>(dev, a.shape, a.state, a.out, lse); }};
}
Case attention_deltas(Ground& g, const Extents& e) {
  const AttentionCase a(g, e);
  return {[=](Device& dev) { attention_delta<bf16>(dev, a.shape, a.dout, a.out, a.delta); }};
}
Case attention_gradient(Ground& g, const Extents& e) {
  const AttentionCase a(g, e);
  const auto dq = g.normal<float>(e.tokens(), e.heads * e.head_dim), dk = g.normal<float>(e.tokens(), e.kv_heads * e.head_dim),
             dv = g.normal<float>(e.tokens(), e.kv_heads * e.head_dim);
  return {[=](Device& dev) {
            using M = AttentionCase::M;
            attention_delta<bf16>(dev, a.shape, a.dout, a.out, a.delta);
            attention_backward<bf16>(dev, a.shape, Mask{}, a.scale, M(a.q), M(a.k), M(a.v), a.dout, a.state.m, a.delta, Matrix<float>(dq),
                                     Matrix<float>(dk), Matrix<float>(dv));
          },
          [=](Device& dev) { a.forward(dev); }};
}

struct ScanCase {
  using M = Matrix<const bf16>;
  ScanCase(Ground& g, const Extents& e)
      : shape{e.sequences, e.length, e.ssm_heads, 1, e.ssm_head_dim, e.state, e.chunk, 0, std::numeric_limits<double>::infinity()},
        x(g.normal<bf16>(e.tokens(), e.inner())), b(g.normal<bf16>(e.tokens(), e.state, 0.1)), c(g.normal<bf16>(e.tokens(), e.state, 0.1)),
        dt(g.normal<bf16>(e.tokens(), e.ssm_heads)), y(g.normal<bf16>(e.tokens(), e.inner())), steps(g.normal<float>(e.tokens(), e.ssm_heads)),
        dt_bias(g.constant<float>(e.ssm_heads, -2)), a_log(g.constant<float>(e.ssm_heads, 1)), d(g.constant<float>(e.ssm_heads, 1)),
        states(g.normal<float>(e.sequences * shape.chunks(), e.inner() * e.state)), last(g.normal<float>(e.sequences, e.inner() * e.state)) {}
  SsdInput<bf16> input() const { return {M(x), M(b), M(c), M(dt)}; }
  SsdWeights<float> weights() const { return {dt_bias, a_log, d}; }
  SsdSaved<float> saved() const {
    return {steps, Tensor3<float>(states.data(), shape.batch, shape.chunks(), shape.num_heads * shape.head_dim * shape.state_size)};
  }
  void forward(Device& dev) const { ssd<bf16>(dev, shape, input(), weights(), {}, y, saved(), last); }
  SsdShape shape;
  Tensor2<bf16> x, b, c, dt, y;
  Tensor2<float> steps;
  Tensor1<float> dt_bias, a_log, d;
  Tensor2<float> states, last;
};
Case scan_forward(Ground& g, const Extents& e) {
  const ScanCase s(g, e);
  return {[=](Device& dev) { s.forward(dev); }};
}
Case scan_gradient(Ground& g, const Extents& e) {
  const ScanCase s(g, e);
  const auto dy = g.normal<bf16>(e.tokens(), e.inner()), dx = g.normal<bf16>(e.tokens(), e.inner()), db = g.normal<bf16>(e.tokens(), e.state),
             dc = g.normal<bf16>(e.tokens(), e.state), ddt = g.normal<bf16>(e.tokens(), e.ssm_heads);
  const auto dw = g.normal<float>(3, e.ssm_heads);
  return {[=](Device& dev) {
            const auto row = [&](Index i) { return Tensor1<float>(dw.data() + i * s.shape.num_heads, s.shape.num_heads); };
            ssd_backward<bf16>(dev, s.shape, s.input(), s.weights(), s.saved(), dy, {}, {dx, db, dc, ddt}, {row(0), row(1), row(2)}, {});
          },
          [=](Device& dev) { s.forward(dev); }};
}

Case norm_forward(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), e.hidden), y = g.normal<bf16>(e.tokens(), e.hidden);
  const auto w = g.constant<float>(e.hidden, 1), rstd = g.constant<float>(e.tokens(), 1);
  return {[=](Device& dev) { rmsnorm<bf16>(dev, x, w, 1e-5, y, rstd); }};
}
Case norm_gradient(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), e.hidden), dy = g.normal<bf16>(e.tokens(), e.hidden), dx = g.normal<bf16>(e.tokens(), e.hidden);
  const auto w = g.constant<float>(e.hidden, 1), rstd = g.constant<float>(e.tokens(), 1), dw = g.constant<float>(e.hidden, 0);
  return {[=](Device& dev) { rmsnorm_backward<bf16>(dev, dy, x, w, rstd, Add::no, dx, dw); }};
}
Case swiglu_forward(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), 2 * e.wide), y = g.normal<bf16>(e.tokens(), e.wide);
  return {[=](Device& dev) { glu<bf16>(dev, Activation::silu, x, 0.7, y); }};
}
Case swiglu_gradient(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), 2 * e.wide), dy = g.normal<bf16>(e.tokens(), e.wide), dx = g.normal<bf16>(e.tokens(), 2 * e.wide);
  return {[=](Device& dev) { glu_backward<bf16>(dev, Activation::silu, dy, x, 0.7, dx); }};
}
Case gated_norm_forward(Ground& g, const Extents& e) {
  const auto y = g.normal<bf16>(e.tokens(), e.inner()), z = g.normal<bf16>(e.tokens(), e.inner()), out = g.normal<bf16>(e.tokens(), e.inner());
  const auto w = g.constant<float>(e.inner(), 1);
  const auto squares = g.normal<float>(e.tokens(), 1);
  return {[=, width = e.inner()](Device& dev) {
    gated_norm_squares<bf16>(dev, GateOrder::gate_first, Matrix<const bf16>(y), Matrix<const bf16>(z), squares);
    gated_norm<bf16>(dev, GateOrder::gate_first, Matrix<const bf16>(y), Matrix<const bf16>(z), w, squares, width, 1e-5, out);
  }};
}
Case gated_norm_gradient(Ground& g, const Extents& e) {
  const auto y = g.normal<bf16>(e.tokens(), e.inner()), z = g.normal<bf16>(e.tokens(), e.inner()), dout = g.normal<bf16>(e.tokens(), e.inner()),
             dy = g.normal<bf16>(e.tokens(), e.inner()), dz = g.normal<bf16>(e.tokens(), e.inner());
  const auto w = g.constant<float>(e.inner(), 1), dw = g.constant<float>(e.inner(), 0), ones = g.constant<float>(2 * e.tokens(), 1);
  return {[=, rows = e.tokens(), width = e.inner()](Device& dev) {
    const Tensor2<float> squares(ones.data(), rows, 1), dots(ones.data() + rows, rows, 1);
    const auto order = GateOrder::gate_first;
    gated_norm_dots<bf16>(dev, order, dout, Matrix<const bf16>(y), Matrix<const bf16>(z), w, squares, width, 1e-5, dots, dw);
    gated_norm_backward<bf16>(dev, order, dout, Matrix<const bf16>(y), Matrix<const bf16>(z), w, squares, dots, width, 1e-5, dy, Matrix<bf16>(dz));
  }};
}
Case layernorm_forward(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), e.hidden), y = g.normal<bf16>(e.tokens(), e.hidden);
  const auto w = g.constant<float>(e.hidden, 1), b = g.constant<float>(e.hidden, 0), mean = g.constant<float>(e.tokens(), 0),
             rstd = g.constant<float>(e.tokens(), 1);
  return {[=](Device& dev) { layernorm<bf16>(dev, x, w, b, 1e-5, y, mean, rstd); }};
}
Case layernorm_gradient(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), e.hidden), dy = g.normal<bf16>(e.tokens(), e.hidden), dx = g.normal<bf16>(e.tokens(), e.hidden);
  const auto w = g.constant<float>(e.hidden, 1), dw = g.constant<float>(e.hidden, 0), db = g.constant<float>(e.hidden, 0),
             mean = g.constant<float>(e.tokens(), 0), rstd = g.constant<float>(e.tokens(), 1);
  return {[=](Device& dev) { layernorm_backward<bf16>(dev, dy, x, w, mean, rstd, Add::no, dx, dw, db); }};
}
// QK norm: one norm per head, over twice as many heads as there are query heads.
Case head_norm_forward(Ground& g, const Extents& e) {
  const Index width = 2 * e.heads * e.head_dim;
  const auto x = g.normal<bf16>(e.tokens(), width), y = g.normal<bf16>(e.tokens(), width);
  const auto w = g.constant<float>(e.head_dim, 1);
  const auto rstd = g.normal<float>(e.tokens(), 2 * e.heads);
  return {[=](Device& dev) { head_norm<bf16>(dev, Matrix<const bf16>(x), w, 1e-5, Matrix<bf16>(y), Matrix<float>(rstd)); }};
}
Case head_norm_gradient(Ground& g, const Extents& e) {
  const Index width = 2 * e.heads * e.head_dim;
  const auto x = g.normal<bf16>(e.tokens(), width), dy = g.normal<bf16>(e.tokens(), width), dx = g.normal<bf16>(e.tokens(), width);
  const auto w = g.constant<float>(e.head_dim, 1), dw = g.constant<float>(e.head_dim, 0);
  const auto rstd = g.normal<float>(e.tokens(), 2 * e.heads);
  return {[=](Device& dev) {
    head_norm_backward<bf16>(dev, Matrix<const bf16>(dy), Matrix<const bf16>(x), w, Matrix<const float>(rstd), Matrix<bf16>(dx), dw);
  }};
}
// Queries and keys of one layer, rotated in place.
Case rotary(Ground& g, const Extents& e) {
  const auto q = g.normal<bf16>(e.tokens(), e.heads * e.head_dim), k = g.normal<bf16>(e.tokens(), e.kv_heads * e.head_dim);
  const Rotation<float> table{g.normal<float>(e.length, e.head_dim / 2), g.normal<float>(e.length, e.head_dim / 2)};
  const auto positions = g.tokens(e.tokens(), e.length);
  return {[=, heads = e.heads, kv_heads = e.kv_heads](Device& dev) {
    rope<bf16, bf16>(dev, Rotate::forward, heads, 1, table, positions, Matrix<const bf16>(q), Matrix<bf16>(q));
    rope<bf16, bf16>(dev, Rotate::forward, kv_heads, 1, table, positions, Matrix<const bf16>(k), Matrix<bf16>(k));
  }};
}
Case convolution_forward(Ground& g, const Extents& e) {
  const Index channels = e.inner() + 2 * e.state;
  const auto x = g.normal<bf16>(e.tokens(), channels), y = g.normal<bf16>(e.tokens(), channels);
  const auto w = g.normal<float>(channels, 4);
  const auto bias = g.constant<float>(channels, 0);
  return {[=, batch = e.sequences](Device& dev) { convolution<bf16>(dev, batch, Matrix<const bf16>(x), w, bias, {}, Matrix<bf16>(y)); }};
}
Case convolution_gradient(Ground& g, const Extents& e) {
  const Index channels = e.inner() + 2 * e.state;
  const auto x = g.normal<bf16>(e.tokens(), channels), dy = g.normal<bf16>(e.tokens(), channels), dx = g.normal<bf16>(e.tokens(), channels);
  const auto w = g.normal<float>(channels, 4), dw = g.normal<float>(channels, 4);
  const auto bias = g.constant<float>(channels, 0), dbias = g.constant<float>(channels, 0);
  return {[=, batch = e.sequences](Device& dev) {
    convolution_backward<bf16>(dev, batch, Matrix<const bf16>(dy), Matrix<const bf16>(x), w, bias, {}, Matrix<bf16>(dx), dw, dbias, {});
  }};
}
Case residual(Ground& g, const Extents& e) {
  const auto x = g.normal<bf16>(e.tokens(), e.hidden), y = g.normal<bf16>(e.tokens(), e.hidden);
  return {[=](Device& dev) { add<bf16>(dev, Tensor1<const bf16>(flat(x)), flat(y)); }};
}
Case embedding_forward(Ground& g, const Extents& e) {
  const auto tokens = g.tokens(e.tokens(), e.vocab);
  const auto table = g.normal<bf16>(e.vocab, e.hidden), x = g.normal<bf16>(e.tokens(), e.hidden);
  return {[=](Device& dev) { embedding<bf16>(dev, tokens, table, 0, 2, x); }};
}
Case embedding_gradient(Ground& g, const Extents& e) {
  const auto tokens = g.tokens(e.tokens(), e.vocab);
  const auto dx = g.normal<bf16>(e.tokens(), e.hidden);
  const auto dtable = g.normal<float>(e.vocab, e.hidden);
  return {[=](Device& dev) { embedding_backward<bf16>(dev, tokens, dx, 0, 2, -1, dtable); }};
}
// Cross-entropy of one block of rows of logits, forward and backward.
Case loss(Ground& g, const Extents& e) {
  const auto logits = g.normal<float>(e.logits, e.vocab), sums = g.normal<float>(2, e.logits);
  const auto top = g.constant<float>(e.logits, 0);
  const auto labels = g.tokens(e.logits, e.vocab);
  const auto dlogits = g.normal<bf16>(e.logits, e.vocab);
  return {[=, vocab = e.vocab](Device& dev) {
    logits_top<float>(dev, logits, vocab, top);
    logits_sums<float>(dev, logits, vocab, top, labels, 0, sums);
    cross_entropy_backward<bf16>(dev, logits, vocab, top, sums, labels, 0, {}, {}, dlogits);
  }};
}
Case optimizer(Ground& g, const Extents& e) {
  const auto gradient = g.normal<float>(1, e.parameters), m = g.normal<float>(1, e.parameters), master = g.normal<float>(1, e.parameters);
  const auto v = g.constant<float>(e.parameters, 1);
  const auto w = g.normal<bf16>(1, e.parameters);
  const auto step = g.constant<float>(update_values, 1e-3);
  return {[=](Device& dev) {
    update_weights<bf16>(dev, AdamW{0.9, 0.95, 1e-8}, step, Tensor1<const float>(flat(gradient)), {flat(m), v}, flat(master), flat(w));
  }};
}
Case norm_of_gradients(Ground& g, const Extents& e) {
  const auto gradient = g.normal<float>(1, e.parameters);
  const auto sum = g.constant<double>(1, 0);
  return {[=](Device& dev) { add_sum_of_squares<float>(dev, Tensor1<const float>(flat(gradient)), sum); }};
}

const std::vector<std::pair<const char*, Maker>>& kernels() {
  static const std::vector<std::pair<const char*, Maker>> all = {{"copy", copy_case},
                                                                 {"product", gemm_case<bf16>},
                                                                 {"product_fp32", gemm_case<float>},
                                                                 {"layer_forward", layer_forward},
                                                                 {"layer_backward", layer_backward},
                                                                 {"experts_forward", experts_forward<false>},
                                                                 {"experts_forward_apart", experts_forward<true>},
                                                                 {"experts_backward", experts_backward<false>},
                                                                 {"experts_backward_apart", experts_backward<true>},
                                                                 {"experts_token", experts_token<false>},
                                                                 {"experts_token_apart", experts_token<true>},
                                                                 {"attention_forward", attention_forward},
                                                                 {"attention_backward", attention_gradient},
                                                                 {"attention_finish", attention_ends},
                                                                 {"attention_delta", attention_deltas},
                                                                 {"scan_forward", scan_forward},
                                                                 {"scan_backward", scan_gradient},
                                                                 {"rmsnorm_forward", norm_forward},
                                                                 {"rmsnorm_backward", norm_gradient},
                                                                 {"swiglu_forward", swiglu_forward},
                                                                 {"swiglu_backward", swiglu_gradient},
                                                                 {"gated_norm_forward", gated_norm_forward},
                                                                 {"gated_norm_backward", gated_norm_gradient},
                                                                 {"layernorm_forward", layernorm_forward},
                                                                 {"layernorm_backward", layernorm_gradient},
                                                                 {"head_norm_forward", head_norm_forward},
                                                                 {"head_norm_backward", head_norm_gradient},
                                                                 {"rope", rotary},
                                                                 {"convolution_forward", convolution_forward},
                                                                 {"convolution_backward", convolution_gradient},
                                                                 {"residual", residual},
                                                                 {"embedding_forward", embedding_forward},
                                                                 {"embedding_backward", embedding_gradient},
                                                                 {"cross_entropy", loss},
                                                                 {"adamw", optimizer},
                                                                 {"norm_of_gradients", norm_of_gradients}};
  return all;
}

// All kernels, and attention by cuDNN as separate cases if this program is built with cuDNN.
std::vector<std::pair<const char*, Maker>> kernels_of_this_program() {
  auto all = kernels();
  if (backend::name().find("cuDNN") != std::string::npos) {
    all.emplace_back("attention_forward_cudnn", by_cudnn(attention_forward));
    all.emplace_back("attention_backward_cudnn", by_cudnn(attention_gradient));
  }
  return all;
}

void print_rates(const Extents& e) {
  std::map<std::string, Rate> rates;
  Table table({{"kernel"}, {"ms", true}, {"TFLOP/s", true}, {"GB/s", true}, {"of GEMM", true}, {"of copy", true}});
  for (const auto& [name, make] : kernels_of_this_program()) {
    if (!e.wants(name)) continue;
    const Rate& r = rates[name] = measured(make, e);
    const double of_gemm = r.flops / r.seconds / (rates["product"].flops / rates["product"].seconds);
    const double of_copy = r.bytes / r.seconds / (rates["copy"].bytes / rates["copy"].seconds);
    table.row({name, fmt::format("{:.3f}", 1e3 * r.seconds), fmt::format("{:.1f}", 1e-12 * r.flops / r.seconds),
               fmt::format("{:.0f}", 1e-9 * r.bytes / r.seconds), std::isfinite(of_gemm) ? fmt::format("{:.2f}", of_gemm) : "",
               fmt::format("{:.2f}", of_copy)});
    fmt::print(stderr,
               R"({{"kernel":"{}","length":{},"seconds":{:.9g},"flops":{:.9g},"bytes":{:.9g},"of_copy":{:.4g}}})"
               "\n",
               name, e.length, r.seconds, r.flops, r.bytes, of_copy);
  }
  fmt::print("{} sequences of {} tokens; {}\n{}", e.sequences, e.length, threads_text(), table.str());
}

// Parses the command line.
Extents read_extents(const std::vector<std::string>& words) {
  Extents e;
  for (const std::string& word : words)
    if (word == "small") e.shrink();
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (word == "small") continue;
    if (key == "only") {
      e.only = word.substr(equals + 1);
      continue;
    }
    const double value = equals == word.npos ? 0 : std::strtod(word.c_str() + equals + 1, nullptr);
    require((key == "length" || key == "sequences" || key == "windows" || key == "seconds") && (value > 0 || key == "seconds"), Exit::usage,
            "{}: unknown or invalid argument; valid are length=N, sequences=N, windows=N, seconds=S, only=NAME,... and small", word);
    if (key == "length") e.length = Index(value);
    else if (key == "sequences") e.sequences = Index(value);
    else if (key == "windows") e.windows = int(value);
    else e.seconds = value;
  }
  return e;
}

}  // namespace
}  // namespace gyr

int main(int argc, char** argv) {
  using namespace gyr;
  prepare_threads(argv);
  MPI_Init(&argc, &argv);
  int code = 0;
  try {
    const Extents e = read_extents({argv + 1, argv + argc});
    start_threads(1, 0);
    print_rates(e);
    end_threads();
  } catch (const Error& error) {
    fmt::print(stderr, "device_rates: {}\n", error.what());
    code = int(error.code);
  }
  MPI_Finalize();
  return code;
}
