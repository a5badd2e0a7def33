// SPDX-License-Identifier: BSD-3-Clause
// Benchmark of a full training step against the GEMMs that it contains. Every window runs a step, a step with several micro-batches, and the model's
// GEMMs only, with the same shapes, counts and order on all ranks at once. Medians over the windows are printed.
//   mpiexec -n 2 step_benchmark DECK [windows=5] [micros=4] [key=value ...]      micros=1: only the step with one micro-batch
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <random>

#include "kernels/base/threads.hpp"
#include "kernels/ops/gemm.hpp"
#include "modules/cost/flops.hpp"
#include "src/base/precision.hpp"
#include "src/commands/runtime.hpp"
#include "src/config/run_config.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Index head_rows = 256;          // rows of logits that the head computes at a time
constexpr Index copied = Index(1) << 24;  // elements of the copy that measures the memory bandwidth

// Shapes (out, in) of the weights of one layer. Projections with the same input are fused into one GEMM, as in the
// step.
struct Linear {
  Index out, in;
};
std::vector<Linear> linears_of(const ModelConfig& m, char symbol) {
  const Index q = m.attention.num_heads * m.attention.head_dim, k = m.attention.num_kv_heads * m.attention.head_dim;
  std::vector<Linear> all;
  const auto add = [&](Linear first, Linear second) { all.push_back(first), all.push_back(second); };
  if (symbol == 'P' || symbol == 'M') add({m.mamba.projected(), m.hidden_size}, {m.hidden_size, m.mamba.inner()});
  if (symbol == 'P' || symbol == '*' || symbol == 'W') add({q + 2 * k, m.hidden_size}, {m.hidden_size, q});
  if (symbol == 'P' || symbol == '-') add({(m.mlp.gated ? 2 : 1) * m.mlp.intermediate_size, m.hidden_size}, {m.hidden_size, m.mlp.intermediate_size});
  return all;
}

// The GEMMs of all layers and the head for one micro-batch of `rows` tokens: forward, input gradient, weight gradient. In bf16 they widen
// their operands, as in the step.
template <class T>
class Mix {
 public:
  Mix(const ModelConfig& m, Index rows) : rows_(rows), head_{m.vocab_size, m.hidden_size} {
    for (const char symbol : m.pattern)
      for (const Linear& linear : linears_of(m, symbol)) linears_.push_back(linear);
    Index weights = size(head_), widest = head_.in;
    for (const Linear& l : linears_) weights += size(l), widest = std::max({widest, l.out, l.in});
    const Index side_size = std::max(rows * widest, head_rows * head_.out);
    activations_ = Arena(Memory::activations, 4 * side_size * Index(sizeof(T)) + 1024 + head_rows * head_.out * Index(sizeof(Acc<T>)));
    weights_ = Arena(Memory::weights, weights * Index(sizeof(T) + sizeof(Acc<T>)) + Index(linears_.size() + 1) * 1024);
    for (Tensor1<T>& side : {std::ref(x_), std::ref(y_), std::ref(dx_), std::ref(dy_)}) side = filled<T>(activations_, side_size);
    logits_ = filled<Acc<T>>(activations_, head_rows * head_.out);
    for (const Linear& l : linears_) w_.push_back(filled<T>(weights_, size(l))), dw_.push_back(filled<Acc<T>>(weights_, size(l)));
    head_w_ = filled<T>(weights_, size(head_)), head_dw_ = filled<Acc<T>>(weights_, size(head_));
    Device dry(true, 0);
    run(dry);
    single_ = std::make_unique<Device>(false, dry.scratch.high_water());
  }

  double flops() const {
    double sum = double(size(head_));
    for (const Linear& l : linears_) sum += double(size(l));
    return 6 * sum * double(rows_);
  }

  void run() const { run(*single_); }

 private:
  void run(Device& dev) const {
    const Index count = Index(linears_.size());
    for (Index i = 0; i < count; ++i) forward(dev, linears_[i], w_[i], rows_);
    for (Index first = 0; first < rows_; first += head_rows) {
      const Index n = std::min(head_rows, rows_ - first);
      linear<T, Acc<T>>(dev, matrix<T>(x_, n, head_.in), matrix<T>(head_w_, head_.out, head_.in), matrix<Acc<T>>(logits_, n, head_.out));
      backward(dev, head_, head_w_, head_dw_, n);
    }
    for (Index i = count - 1; i >= 0; --i) backward(dev, linears_[i], w_[i], dw_[i], rows_);
  }

  static Index size(const Linear& l) { return l.out * l.in; }
  template <class S>
  static Tensor1<S> filled(Arena& arena, Index n) {
    const auto x = arena.tensor<S>(n);
    for (Index i = 0; i < n; ++i) x(i) = S(0.01f * float(i % 97 - 48));
    return x;
  }
  template <class S>
  static Matrix<S> matrix(const Tensor1<S>& x, Index rows, Index columns) {
    return {x.data(), rows, columns, columns};
  }

  void forward(Device& dev, const Linear& l, const Tensor1<T>& w, Index rows) const {
    linear<T>(dev, matrix<T>(x_, rows, l.in), matrix<T>(w, l.out, l.in), matrix<T>(y_, rows, l.out));
  }
  void backward(Device& dev, const Linear& l, const Tensor1<T>& w, const Tensor1<Acc<T>>& dw, Index rows) const {
    linear_backward_input<T>(dev, matrix<T>(dy_, rows, l.out), matrix<T>(w, l.out, l.in), matrix<T>(dx_, rows, l.in));
    linear_backward_weight<T>(dev, matrix<T>(dy_, rows, l.out), matrix<T>(x_, rows, l.in), matrix<Acc<T>>(dw, l.out, l.in));
  }

  Index rows_;
  Linear head_;
  std::vector<Linear> linears_;
  Arena activations_{Memory::activations, 0}, weights_{Memory::weights, 0};
  Tensor1<T> x_, y_, dx_, dy_, head_w_;
  Tensor1<Acc<T>> logits_, head_dw_;
  std::vector<Tensor1<T>> w_;
  std::vector<Tensor1<Acc<T>>> dw_;
  std::unique_ptr<Device> single_;
};

// Memory copy y = a x.
class Copy {
 public:
  Copy()
      : memory_(Memory::activations, 2 * copied * Index(sizeof(float)) + 1024), x_(memory_.tensor<float>(copied)), y_(memory_.tensor<float>(copied)) {
    std::fill_n(x_.data(), copied, 1.0f);
    std::fill_n(y_.data(), copied, 1.0f);
  }
  static constexpr double bytes = 2.0 * sizeof(float) * copied;
  void run(float factor) const {
    const float* const from = x_.data();
    float* const to = y_.data();
#pragma GCC ivdep
    for (Index i = 0; i < copied; ++i) to[i] = factor * from[i];
  }

 private:
  Arena memory_;
  Tensor1<float> x_, y_;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.size() % 2 ? x[x.size() / 2] : (x[x.size() / 2 - 1] + x[x.size() / 2]) / 2;
}

// Processor seconds of this rank, all threads together. Other load on the machine disturbs them least.
double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct Time {
  double seconds;  // wall time, from the start on all ranks to the end of the last one
  double cores;    // cores that the ranks used on average; fewer than the threads if other processes use the machine
};
template <class Body>
Time time_of(Communicator& world, const Body& body) {
  world.sum(0);
  const auto start = Clock::now();
  const double before = processor_seconds();
  body();
  const double used = world.sum(processor_seconds() - before);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return {seconds, used / seconds};
}

struct Window {
  Time step, mix, long_step, copy;
};

struct Extent {
  int windows = 5, micros = 4;  // number of measurements; micro-batches of the longer step
};

// Rates of one rank while all ranks compute: flop/s of the GEMMs only, bytes/s of a copy.
struct Limits {
  double gemms, copy;
};

void print_kernels(std::vector<Work> work, int steps, double step, const Limits& limits) {
  std::sort(work.begin(), work.end(), [](const Work& a, const Work& b) { return a.seconds > b.seconds; });
  fmt::print(
      "\nkernels of rank 0, per step of one micro-batch; of limit: time at the rate of the GEMMs only ({:.1f} GFLOP/s) or of a copy ({:.1f} "
      "GB/s),\n"
      "whichever is longer, divided by the measured time (above 1: data in cache)\n{:24}{:>8}{:>10}{:>8}{:>10}{:>8}{:>10}\n",
      1e-9 * limits.gemms, 1e-9 * limits.copy, "kernel", "calls", "ms", "share", "GFLOP/s", "GB/s", "of limit");
  double inside = 0;
  for (const Work& w : work) {
    inside += w.seconds;
    fmt::print("{:24}{:8.0f}{:10.1f}{:8.3f}{:10.1f}{:8.1f}{:10.2f}\n", w.kernel, double(w.calls) / steps, 1e3 * w.seconds / steps,
               w.seconds / steps / step, 1e-9 * w.flops / w.seconds, 1e-9 * w.bytes / w.seconds,
               std::max(w.flops / limits.gemms, w.bytes / limits.copy) / w.seconds);
  }
  fmt::print("{:24}{:8}{:10.1f}{:8.3f}\n", "outside kernels", "", 1e3 * (step - inside / steps), 1 - inside / steps / step);
}

void print_result(const std::vector<Window>& windows, const ModelConfig& model, double mix_flops, Index seq_length, int ranks, double tokens,
                  int micros) {
  const auto over = [&](auto&& f) {
    std::vector<double> x;
    for (const Window& w : windows) x.push_back(f(w));
    return median(std::move(x));
  };
  const double model_flops = training_factor * forward_flops(model, seq_length).minimal * tokens;
  const double step = over([](const Window& w) { return w.step.seconds; });
  const auto line = [&](const std::string& what, double seconds, double micros, double gemms, double total) {
    fmt::print("{:28}{:9.3f} s{:10.0f} tokens/s{:9.1f} model GFLOP/s   GEMM fraction {:5.3f}   MFU {:5.3f}\n", what, seconds,
               micros * tokens / seconds, 1e-9 * micros * model_flops / seconds, gemms, total);
  };
  const double total = model_flops / mix_flops;
  const double ratio = over([](const Window& w) { return w.mix.seconds / w.step.seconds; });
  fmt::print("median of {} windows, {} ranks, threads: {}; {:.0f} tokens per micro-batch, all ranks\n", windows.size(), ranks, threads_text(),
             tokens);
  line("step, 1 micro-batch", step, 1, ratio, ratio * total);
  if (micros > 1) {
    const double long_ratio = over([&](const Window& w) { return micros * w.mix.seconds / w.long_step.seconds; });
    line(fmt::format("step, {} micro-batches", micros), over([](const Window& w) { return w.long_step.seconds; }), micros, long_ratio,
         long_ratio * total);
  }
  const double mix_seconds = over([](const Window& w) { return w.mix.seconds; });
  fmt::print("GEMMs only                  {:9.3f} s{:>38.1f} GFLOP/s\n", mix_seconds, 1e-9 * mix_flops / mix_seconds);
  const double used = over([](const Window& w) { return w.mix.seconds * w.mix.cores / (w.step.seconds * w.step.cores); });
  fmt::print("step, by processor time     {:>78.3f}   MFU {:5.3f}\n", used, used * total);
  fmt::print("cores in use                {:9.2f} of {} during the step, {:.2f} during the GEMMs only\n",
             over([](const Window& w) { return w.step.cores; }), ranks * rank_threads(), over([](const Window& w) { return w.mix.cores; }));
  fmt::print("copy                        {:>49.1f} GB/s\n", over([&](const Window& w) { return 1e-9 * Copy::bytes * ranks / w.copy.seconds; }));
  fmt::print(
      "GEMM fraction: flops of the GEMMs of layers and head / seconds of the full step, divided by the rate of the same GEMMs only, in\n"
      "               the same window. Matrix products inside attention and the scan count as overhead. The target is at least 0.50.\n"
      "MFU:           flops of the model (causal half of attention, minimal recurrence, no recomputation; {:.1f} GFLOP per micro-batch of a\n"
      "               rank) / seconds of the full step, divided by the same rate\n"
      "If the cores in use are fewer than the threads, other processes use the machine. Then trust the line by processor time, which counts\n"
      "waiting for another rank as time of the step.\n",
      1e-9 * model_flops / ranks);
  fmt::print("model flops per step: {:.6g}\nseconds per step: {:.3f}\nprocessor seconds per step: {:.3f}\n", model_flops, step,
             over([](const Window& w) { return w.step.seconds * w.step.cores; }));
}

MicroBatch random_batch(Index batch, Index seq_length, Index vocab_size, unsigned seed) {
  std::mt19937 draw(seed);
  MicroBatch m{batch, seq_length, {}, {}};
  for (Index i = 0; i < batch * seq_length; ++i)
    m.tokens.push_back(Token(draw() % std::uint32_t(vocab_size))), m.labels.push_back(Token(draw() % std::uint32_t(vocab_size)));
  return m;
}

template <class T>
void compare(Runtime& runtime, const RunConfig& run, const Layout& layout, const Extent& extent) {
  const EngineConfig config = engine_config(run, layout);
  Grid grid(layout, runtime.world(), wait_policy_of(runtime.world()));
  Timers timers(engine_timer_names());
  const Capacity capacity = predicted_capacity(config, layout, grid.position());
  Engine engine(config, grid, &capacity, timers);
  engine.initialise(1);
  const Mix<T> mix(config.model, layout.sequences(grid.position(), config.micro_batch_size, config.seq_length).rows());
  const Copy copy;

  int steps = 0;
  const auto train = [&](int micros) {
    ++steps;
    const auto source = [&](int i) {
      return random_batch(config.micro_batch_size, config.seq_length, config.model.vocab_size, 1000 * steps + 10 * i + grid.coordinate(Axis::data));
    };
    return time_of(grid.world(), [&] {
      auto t = timers.scope("step");
      engine.train(source, micros, steps, 1e-4);
    });
  };
  std::vector<Work> work;
  const auto window = [&] {
    Window w{};
    engine.device().clear_work();
    w.step = train(1);
    for (const Work& k : engine.device().work()) {
      const auto same = std::find_if(work.begin(), work.end(), [&](const Work& o) { return std::string_view(o.kernel) == k.kernel; });
      Work& sum = same == work.end() ? work.emplace_back(Work{k.kernel}) : *same;
      sum.calls += k.calls, sum.flops += k.flops, sum.bytes += k.bytes, sum.seconds += k.seconds;
    }
    w.mix = time_of(grid.world(), [&] { mix.run(); });
    if (extent.micros > 1) w.long_step = train(extent.micros);
    w.copy = time_of(grid.world(), [&] { copy.run(0.5f); });
    return w;
  };
  window();  // warm-up: touches all memory
  timers.reset();
  for (const Work& w : work)
    if (std::string_view(w.kernel) == "gemm")
      ensure(w.flops == mix.flops(), "the GEMMs of the step take {} flops, but those of the benchmark take {}", w.flops, mix.flops());
  work.clear();

  std::vector<Window> windows;
  for (int i = 0; i < extent.windows; ++i) windows.push_back(window());
  const std::vector<double> stopwatches = grid.world().gather(timers.packed());
  if (runtime.rank() != 0) return;
  print_result(windows, config.model, mix.flops() * runtime.ranks(), config.seq_length, runtime.ranks(),
               double(layout.size(Axis::data) * config.micro_batch_size * config.seq_length), extent.micros);
  double mean = 0, all = 0;
  for (const Window& w : windows) mean += w.step.seconds / double(windows.size()), all += w.step.seconds + w.long_step.seconds;
  std::vector<double> gemm_rates, copy_rates;
  for (const Window& w : windows) gemm_rates.push_back(mix.flops() / w.mix.seconds), copy_rates.push_back(Copy::bytes / w.copy.seconds);
  print_kernels(std::move(work), extent.windows, mean, {median(std::move(gemm_rates)), median(std::move(copy_rates))});
  fmt::print("\nphases of all steps\n{}", Timers::table(timers.names(), stopwatches, all, engine_step_parts(timers.names())));
}

void compare(Runtime& runtime, const std::string& file, const Extent& extent, const std::vector<std::string>& overrides) {
  Deck deck = Deck::read(file, overrides);
  RunConfig run = read_run_config(deck);
  deck.finish();
  require(runtime.ranks() % run.parallel.context == 0, Exit::config, "{} ranks: the number of ranks must be a multiple of parallel.context = {}",
          runtime.ranks(), run.parallel.context);
  run.train.global_batch_size = extent.micros * runtime.ranks() / run.parallel.context * run.train.micro_batch_size;
  const Layout layout = layout_of(run, runtime.ranks());
  require(layout.size(Axis::data) * layout.size(Axis::context) == runtime.ranks(), Exit::config,
          "this benchmark supports only data and context parallelism: parallel.data times parallel.context must equal the number of ranks");
  with_type(precision_of(run.train.precision), [&]<class T>(std::type_identity<T>) { compare<T>(runtime, run, layout, extent); });
}

}  // namespace
}  // namespace gyr

int main(int argc, char** argv) {
  using namespace gyr;
  prepare_threads(argv);
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        require(argc > 1, Exit::usage, "give a deck: step_benchmark DECK [windows=N] [micros=N] [key=value ...]");
        Extent extent;
        std::vector<std::string> overrides;
        for (const std::string& word : std::vector<std::string>(argv + 2, argv + argc)) {
          const bool windows = word.starts_with("windows="), micros = word.starts_with("micros=");
          if (!windows && !micros) {
            overrides.push_back(word);
            continue;
          }
          int& count = windows ? extent.windows : extent.micros;
          count = std::atoi(word.c_str() + word.find('=') + 1);
          require(count > 0, Exit::usage, "{}: must be at least 1", word);
        }
        compare(runtime, argv[1], extent, overrides);
      },
      LastLine::never);
}
