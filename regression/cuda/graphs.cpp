// SPDX-License-Identifier: BSD-3-Clause
// Tests of CUDA graphs on the emulated device: a captured graph repeats its work under any schedule, calls that CUDA
// forbids during capture are rejected, and text generation and training give the same bits with and without graphs.
#include "kernels/cuda/emulation/graphs.hpp"

#include <cstdlib>
#include <random>
#include <set>

#include "kernels/cuda/machine/launch.hpp"
#include "kernels/device/device_graph.hpp"
#include "kernels/ops/grouped_gemm.hpp"
#include "regression/cuda/machines.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/draw.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"
#include "regression/support/texts.hpp"
#include "src/engine/step/graphs.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr::testing::graphs_suite {

using namespace gyr::cuda;

namespace {

Machine checked_machine(When when) {
  Machine machine = Machine::instance();
  machine.when = when, machine.checked = true;
  return machine;
}

// y = x + v + step, where `step` is read from device memory.
GYR_KERNEL add_kernel(float v, Global<const float> step, Global<const float> x, Global<float> y) {
  const int t = thread_index();
  if (t < x.columns()) y.store(t, x.load(t) + v + step.load(0));
}

struct StepValues {
  Arena arena{Memory::activations, 1 << 16};
  Tensor1<float> a = arena.tensor<float>(64), b = arena.tensor<float>(64), c = arena.tensor<float>(64), step = arena.tensor<float>(1);
  StepValues() {
    const std::vector<float> zeros(64, 0.0f);
    for (const auto& x : {a, b, c}) copy_to_device(zeros.data(), x);
    set_step(0);
  }
  void set_step(float to) const { copy_to_device(&to, step); }
  float last_of_c() const {
    std::vector<float> all(64);
    copy_to_host(c, all.data());
    return all[63];
  }
};

// b = a + v + step on the first stream; c = b + 10 + step on the second stream, which joins the capture and is waited
// for; then b = 0 + c + step on the first.
void enqueue(const StepValues& n, Device& first, Device& second, float v) {
  cudaEvent_t written, read;
  cudaEventCreateWithFlags(&written, cudaEventDisableTiming), cudaEventCreateWithFlags(&read, cudaEventDisableTiming);
  launch(first, "writes", {1, 64}, add_kernel, v, n.step, n.a, n.b);
  cudaEventRecord(written, stream_of(first));
  cudaStreamWaitEvent(stream_of(second), written, 0);
  launch(second, "reads", {1, 64}, add_kernel, 10.0f, n.step, n.b, n.c);
  cudaEventRecord(read, stream_of(second));
  cudaStreamWaitEvent(stream_of(first), read, 0);
  launch(first, "writes again", {1, 64}, add_kernel, 0.0f, n.step, n.c, n.b);
  cudaEventDestroy(written), cudaEventDestroy(read);
}

}  // namespace

TEST(graphs, replay_repeats_captured_work) {
  for (const When when : {When::early, When::late, When::any}) {
    const With schedule(checked_machine(when));
    StepValues n;
    Device first(false, 1 << 12), second(false, 1 << 12);
    DeviceGraph graph;
    graph.capture(first.queue, [&] { enqueue(n, first, second, 1); });
    first.fence(), second.fence();
    EXPECT_EQ(n.last_of_c(), 0) << "a capture executed its work";
    for (int step = 0; step < 3; ++step) {
      n.set_step(float(step));
      graph.launch(first.queue);
      graph.launch(first.queue);
      first.fence();
      EXPECT_EQ(n.last_of_c(), float(11 + 2 * step));
    }
  }
}

// A kernel argument keeps its value at capture time, so a direct launch with another argument gives other results.
TEST(graphs, kernel_arguments_are_fixed_at_capture) {
  StepValues n;
  Device dev(false, 1 << 12), other(false, 1 << 12);
  DeviceGraph graph;
  for (int step = 0; step < 3; ++step) {
    const auto direct = [&] { enqueue(n, dev, other, float(step)); };
    if (!graph.captured()) graph.capture(dev.queue, direct);
    graph.launch(dev.queue);
    dev.fence();
    const float replayed = n.last_of_c();
    direct();
    dev.fence();
    EXPECT_EQ(n.last_of_c(), float(10 + step));
    EXPECT_EQ(replayed == n.last_of_c(), step == 0) << step;
  }
}

TEST(graphs, graph_counts_as_one_launch) {
  StepValues n;
  Device dev(false, 1 << 12), other(false, 1 << 12);
  DeviceGraph graph;
  Index before = launches();
  enqueue(n, dev, other, 1);
  EXPECT_EQ(launches() - before, 3);
  before = launches();
  graph.capture(dev.queue, [&] { enqueue(n, dev, other, 1); });
  EXPECT_EQ(launches() - before, 0);
  graph.launch(dev.queue);
  EXPECT_EQ(launches() - before, 1);
  dev.fence();
}

// Calls that are forbidden while a stream is captured, with the error given in CUDA's documentation.
TEST(graphs, capture_rejects_waits_and_allocations) {
  StepValues n;
  Device dev(false, 1 << 12), other(false, 1 << 12);
  const cudaStream_t s = stream_of(dev), second_stream = stream_of(other);
  cudaEvent_t outside, inside;
  cudaEventCreateWithFlags(&outside, cudaEventDisableTiming), cudaEventCreateWithFlags(&inside, cudaEventDisableTiming);
  cudaEventRecord(outside, s);
  void* memory = nullptr;
  float number = 0;
  struct Row {
    const char* name;
    std::function<cudaError_t()> call;
    cudaError_t error;
  };
  const std::vector<Row> rows{
      {"synchronize", [&] { return cudaStreamSynchronize(s); }, cudaErrorStreamCaptureUnsupported},
      {"query", [&] { return cudaStreamQuery(s); }, cudaErrorStreamCaptureUnsupported},
      {"device", [&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported},
      {"malloc", [&] { return cudaMalloc(&memory, 64); }, cudaErrorStreamCaptureUnsupported},
      {"malloc on the host", [&] { return cudaMallocHost(&memory, 64); }, cudaErrorStreamCaptureUnsupported},
      {"copy", [&] { return cudaMemcpy(&number, n.c.data(), sizeof number, cudaMemcpyDeviceToHost); }, cudaErrorStreamCaptureImplicit},
      {"default stream", [&] { return cudaMemcpyAsync(n.a.data(), n.b.data(), 4, cudaMemcpyDeviceToDevice, nullptr); },
       cudaErrorStreamCaptureImplicit},
      {"query of an event", [&] { return cudaEventQuery(outside); }, cudaErrorStreamCaptureUnsupported},
      {"event of the capture", [&] { return cudaEventRecord(inside, s), cudaEventSynchronize(inside); }, cudaErrorCapturedEvent},
      {"event from outside", [&] { return cudaStreamWaitEvent(s, outside, 0); }, cudaErrorStreamCaptureIsolation},
      {"again", [&] { return cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal); }, cudaErrorIllegalState},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    launch(dev, "writes", {1, 64}, add_kernel, 1.0f, n.step, n.a, n.b);
    EXPECT_EQ(row.call(), row.error);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
  const auto forked = [&] {
    EXPECT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    cudaEventRecord(inside, s), cudaStreamWaitEvent(second_stream, inside, 0);
    launch(other, "beside", {1, 64}, add_kernel, 1.0f, n.step, n.a, n.b);
  };
  forked();
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
  forked();
  EXPECT_EQ(cudaStreamEndCapture(second_stream, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventQuery(inside), cudaErrorCapturedEvent);
  // A relaxed capture allows memory allocation.
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  cudaGraphDestroy(graph), cudaFree(memory);
  cudaEventDestroy(outside), cudaEventDestroy(inside);
}

// A rejected capture leaves no graph, and the queue remains usable.
TEST(graphs, rejected_capture_is_reported) {
  StepValues n;
  Device dev(false, 1 << 12), other(false, 1 << 12);
  DeviceGraph graph;
  try {
    graph.capture(dev.queue, [&] { dev.fence(); });
    FAIL() << "a host wait was captured";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::device);
    EXPECT_NE(std::string(e.what()).find("not permitted when stream is capturing"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(graph.captured());
  graph.capture(dev.queue, [&] { enqueue(n, dev, other, 1); });
  graph.launch(dev.queue);
  dev.fence();
  EXPECT_EQ(n.last_of_c(), 11);
}

namespace {

struct Texts {
  std::vector<std::vector<Token>> tokens;
  Index launches = 0;  // launches for the last token
  Index graphs = 0;
};

// Five texts of different lengths share three batch slots, so that slots are reused while other texts continue, and the
// first text ends as the only one. Large random matrices make each next token depend on the earlier ones.
Texts generated(const gyr::testing::Golden& g, DType dtype, const Sampling& sampling, std::uint64_t seed, const char* graphs) {
  setenv("GYR_CUDA_GRAPHS", graphs, 1);
  std::mt19937_64 random(seed);
  std::vector<std::vector<Token>> prompts;
  for (int i = 0; i < 5; ++i) {
    auto& prompt = prompts.emplace_back(1 + random() % 12);
    for (Token& token : prompt) token = Token(random() % std::uint64_t(g.model.vocab_size));
  }
  std::vector<Index> length;
  for (int i = 0; i < 5; ++i) length.push_back(i == 0 ? sampling.tokens : 1 + Index(random() % std::uint64_t(ceil_div(sampling.tokens, 3))));
  gyr::Grid& grid = gyr::testing::single_rank_grid(g.model.layers());
  Generator generator(g.model, dtype, grid, {3, gyr::testing::longest_of(prompts), sampling.tokens});
  unsetenv("GYR_CUDA_GRAPHS");
  Device device(false, 1 << 12);
  generator.stage().fill([&](ParameterList weights, const Arrived& arrived) {
    load_weights(g.folder, grid, generator.stage().config(), weights, [](const Parameter&) {});
    for (const auto& p : weights) {
      const gyr::Stream stream(seed, p->weight.name);
      if (p->weight.shape.size() == 2) assign(device, *p, [&](Index i) { return 0.5 * stream.normal(i); });
      arrived(*p);
    }
  });
  std::vector<Index> made(5);
  Texts texts;
  Index before = 0;
  texts.tokens = gyr::testing::texts_of(generator, prompts, sampling, [&](Index i, Token) {
    texts.launches = launches() - std::exchange(before, launches());
    return ++made[std::size_t(i)] >= length[std::size_t(i)];
  });
  texts.graphs = generator.graphs();
  return texts;
}

}  // namespace

TEST(graphs, generated_tokens_are_equal_with_graphs) {
  const std::uint64_t seed = gyr::testing::seed_of_run();
  int texts = 0, varied = 0;
  for (const char* name : {"plain_gate", "mistral_window", "qwen3_window", "mamba2", "nemotron_h", "llama", "gpt_oss", "deepseek_v3"})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name);
      const gyr::testing::Golden& g = gyr::testing::golden(name);
      const auto has = [&](const char* symbols) { return g.model.pattern.find_first_of(symbols) != std::string::npos; };
      if (dtype == DType::bf16 ? !has("PWE") : has("E")) continue;  // bf16: only models with tensor-core kernels, which experts need for graphs
      for (const double temperature : {0.0, 1.0}) {
        if (temperature > 0 && (dtype == DType::bf16 || name != std::string_view("plain_gate"))) continue;  // sampling is tested once
        const Sampling sampling{.temperature = temperature, .seed = seed, .tokens = has("E") ? 16 : 32};
        const Texts kernels = generated(g, dtype, sampling, seed, "off"), graphs = generated(g, dtype, sampling, seed, "on");
        EXPECT_EQ(kernels.tokens, graphs.tokens);
        ++texts, varied += std::set<Token>(kernels.tokens[0].begin(), kernels.tokens[0].end()).size() > 10;
        EXPECT_EQ(kernels.graphs, 0);
        EXPECT_GE(graphs.graphs, 1);
        EXPECT_LE(graphs.graphs, 3);
        std::printf("%s %s: %ld launches for a token, %ld with graphs, of which there are %ld\n", name, dtype == DType::f32 ? "fp32" : "bf16",
                    long(kernels.launches), long(graphs.launches), long(graphs.graphs));
        EXPECT_EQ(graphs.launches, 5) << "copies of draws, tokens and positions to the device, one graph, and a copy of the drawn tokens back";
        EXPECT_GT(kernels.launches, 12);
      }
    }
  EXPECT_GT(2 * varied, texts) << "too many repetitive texts, which test little";
}

// Layers that need a decision of the host run without graphs.
TEST(graphs, no_graphs_are_made_if_host_decides) {
  const Sampling sampling{.temperature = 0, .tokens = 6};
  EXPECT_EQ(generated(gyr::testing::golden("mixtral"), DType::f32, sampling, 1, "on").graphs, 0);
}

namespace {

// Training run of a random model on one rank. Its steps differ in learning rate, labels, samples and number of
// micro-batches.
struct Course {
  gyr::testing::Draw draw;
  DType dtype;
  double clip_grad;
  static constexpr int steps = 5;

  EngineConfig config() const {
    EngineConfig c = draw.config(draw.micros);
    c.schedule = std::array{one_f_one_b, all_forward_all_backward, zero_bubble}[draw.schedule];
    c.precision = dtype, c.optimizer.clip_grad = clip_grad;
    return c;
  }
  double lr(int step) const { return 1e-2 / step; }
  int micros(int step) const { return step == 4 ? draw.micros - 1 : draw.micros; }
  MicroBatch batch(int step, int i) const {
    MicroBatch m = draw.batch(Index(draw.micros) * step + i);
    const bool some = std::any_of(m.labels.begin(), m.labels.end(), [](Token label) { return label != ignored_label; });
    if (i == 0 && !some) m.labels[0] = 0;  // every step needs at least one target token
    if (step == 3 && !draw.packed)         // only this step has packed documents
      for (Index r = 0; r < m.batch * m.seq_length; ++r) m.positions.push_back(std::int32_t(r % m.seq_length % 4));
    return m;
  }
};

// Models of the random sharded runs (draw.hpp), on one rank.
Course drawn_course(std::uint64_t seed, Index number) {
  gyr::testing::Draw d = gyr::testing::draw(seed, number, 2);
  d.tensor = d.pipeline = d.context = d.data = d.expert = d.chunks = 1;
  d.attention_ranks = 0, d.sequence = false, d.shard = Shard::none, d.chunk_begins.clear(), d.order.clear(), d.permutation.clear();
  return {d, number % 3 == 0 ? DType::bf16 : number % 3 == 1 ? DType::f32 : DType::f64, number % 2 == 0 ? 0.1 : 0};
}

// State to resume from: weights, Adam moments and fp32 master weights.
using Kept = std::vector<std::vector<std::byte>>;
template <class Visit>
void each_tensor(Engine& engine, Visit&& visit) {
  for (const auto& p : engine.parameters())
    for (const Content content : {Content::weight, Content::state("first_moment"), Content::state("second_moment"), Content::master})
      if (const Piece x = engine.tensor(*p, content)) visit(x.values);
}
Kept state_of(Engine& engine) {
  Kept all;
  each_tensor(engine, [&](const AnyTensor& x) { copy_to_host(x, all.emplace_back(std::size_t(x.bytes())).data()); });
  return all;
}
void set_state(Engine& engine, const Kept& state) {
  each_tensor(engine, [&, i = std::size_t(0)](const AnyTensor& x) mutable { copy_to_device(state[i++].data(), x); });
}

// Results of a training run.
struct Left {
  std::vector<double> observed;  // loss and gradient norm of every step
  std::vector<Index> launches;   // number of launches in every step
  Kept state;
  std::string graphs;
};

// Trains from step `first` to step `last`, starting from `state` if it is not empty.
Left trained(const Course& course, const char* graphs, int first = 1, int last = Course::steps, const Kept& state = {}) {
  setenv("GYR_CUDA_GRAPHS", graphs, 1);
  gyr::testing::AnyRig rig(course.config(), gyr::testing::single_rank_grid(course.draw.model.layers()));
  unsetenv("GYR_CUDA_GRAPHS");
  if (!state.empty()) set_state(rig.engine, state);
  Left t;
  for (int step = first; step <= last; ++step) {
    const Index before = launches();
    const StepResult r = rig.engine.train([&](int i) { return course.batch(step, i); }, course.micros(step), step, course.lr(step));
    t.observed.insert(t.observed.end(), {r.loss, r.gradient_norm});
    t.launches.push_back(launches() - before);
  }
  t.state = state_of(rig.engine), t.graphs = rig.engine.graphs();
  return t;
}

std::string why_shown(const Course& course) {
  return reason_without_graphs(course.config(), gyr::testing::single_rank_grid(course.draw.model.layers()));
}

// Losses, gradient norms and the final state must be equal with and without graphs, also after resuming. The last step
// must have fewer launches by more than `factor`.
void expect_training_of_kernels(const Course& course, Index factor) {
  const Left kernels = trained(course, "off"), graphs = trained(course, "on");
  EXPECT_EQ(kernels.graphs, "");
  EXPECT_EQ(graphs.observed, kernels.observed);
  EXPECT_TRUE(graphs.state == kernels.state);
  EXPECT_LT(factor * graphs.launches.back(), kernels.launches.back());
  fmt::print("{}, {} micro-batches: {} launches a step, {} with graphs: {}\n", course.draw.model.pattern, course.draw.micros, kernels.launches.back(),
             graphs.launches.back(), graphs.graphs);
  if (factor == 1) return;
  const Left begun = trained(course, "on", 1, 2), went_on = trained(course, "on", 3, Course::steps, begun.state);
  EXPECT_TRUE(went_on.state == kernels.state);
}

}  // namespace

// Random models. The steps have several micro-batches and differ in samples, number of target tokens, learning rate and
// gradient clipping; one step has packed documents.
TEST(graphs, training_has_same_bits_with_graphs) {
  const std::uint64_t seed = gyr::testing::seed_of_run();
  int repeated = 0, observed = 0, dropped = 0;
  for (Index number = 0; repeated < 3 || observed < 1 || dropped < 2; ++number) {
    ASSERT_LT(number, 400) << repeated << " models with graphs, and " << observed << " others";
    Course course = drawn_course(seed, number);
    course.draw.schedule = gyr::testing::Draw::Kind(repeated % 3), course.draw.micros = 2 + repeated % 2;
    SCOPED_TRACE(fmt::format("seed {}, draw {}: {}", seed, number, course.draw.text()));
    const bool repeats = why_shown(course).empty();
    const bool drops = repeats && course.draw.model.dropout.any();
    if (int& so_far = repeats ? repeated : observed; so_far++ >= (repeats ? 3 : 1) && !(drops && dropped < 2)) continue;
    dropped += drops;
    expect_training_of_kernels(course, repeats ? 5 : 1);
  }
}

// The same for expert layers whose rows are grouped on the device, with an auxiliary loss over all sequences of a step,
// and with updated router biases. If the host counts the rows, kernels are launched without graphs.
TEST(graphs, expert_training_has_same_bits_with_graphs) {
  const std::uint64_t seed = gyr::testing::seed_of_run();
  int found = 0;
  for (Index number = 0; found < 3; ++number) {
    ASSERT_LT(number, 100) << found << " models with experts";
    Course course = drawn_course(seed, number);
    gyr::testing::Draw& d = course.draw;
    if (d.source_length > 0 || d.model.attention.relative_bias.buckets > 0) continue;
    d.ordered = false, d.classes = 0, d.beta = 0, d.offload = {};
    d.model.moe.capacity_factor = 0, d.model.moe.aux_loss = 0.7;
    if (found == 1) d.model.moe.bias = true, d.model.moe.bias_update_rate = 0.01;
    d.model.pattern[std::size_t(number) % d.model.pattern.size()] = 'E';
    d.schedule = gyr::testing::Draw::Kind(found % 3), d.micros = 3, course.dtype = DType::bf16;
    SCOPED_TRACE(fmt::format("seed {}, draw {}: {}", seed, number, d.text()));
    EXPECT_EQ(why_shown(course), "");
    expect_training_of_kernels(course, 5);
    ++found;
    course.dtype = DType::f32;
    EXPECT_EQ(why_shown(course), "experts whose rows the host counts");
    course.dtype = DType::bf16, d.model.moe.capacity_factor = 1;
    EXPECT_EQ(why_shown(course), "experts with a capacity limit, which the host applies");
  }
}

// The number of rows per group may change between two launches of a graph.
TEST(graphs, grouped_gemm_graph_accepts_changing_row_counts) {
  constexpr Index rows = 40, n = 24, k = 16;
  const With schedule(checked_machine(When::late));
  Arena arena{Memory::activations, 1 << 20};
  Device dev(false, 1 << 16);
  auto drawn = [&, number = 0](Index height, Index width) mutable {
    const gyr::Stream stream(1, std::to_string(number++));
    std::vector<bf16> x;
    for (Index i = 0; i < height * width; ++i) x.push_back(bf16(float(stream.normal(i))));
    const auto there = arena.tensor<bf16>(height, width);
    copy_to_device(x.data(), flat(there));
    return std::pair(there, x);
  };
  const auto count = arena.tensor<std::int32_t>(3);
  const auto y = arena.tensor<bf16>(rows, n);
  const auto [x, x_host] = drawn(rows, k);
  GroupMatrices<const bf16> w{{}, n, k};
  std::vector<std::vector<bf16>> w_host;
  for (int g = 0; g < 3; ++g) {
    const auto [there, host] = drawn(n, k);
    w.data.push_back(there.data()), w_host.push_back(host);
  }
  DeviceGraph graph;
  graph.capture(dev.queue, [&] { grouped_linear<bf16>(dev, {count, rows / 3, rows}, x, w, y); });
  for (const std::vector<std::int32_t>& counts : {std::vector<std::int32_t>{40, 0, 0}, {1, 30, 9}, {0, 0, 40}, {13, 13, 14}}) {
    copy_to_device(counts.data(), count);
    graph.launch(dev.queue);
    dev.fence();
    std::vector<bf16> found(rows * n);
    copy_to_host(flat(y), found.data());
    for (Index r = 0; r < rows; ++r) {
      const std::vector<bf16>& of = w_host[r < counts[0] ? 0 : r < counts[0] + counts[1] ? 1 : 2];
      for (Index c = 0; c < n; ++c) {
        double sum = 0;
        for (Index i = 0; i < k; ++i) sum += double(x_host[std::size_t(r * k + i)]) * double(of[std::size_t(c * k + i)]);
        EXPECT_NEAR(double(found[std::size_t(r * n + c)]), sum, 0.05) << "row " << r << " of " << counts[0] << ", " << counts[1] << ", " << counts[2];
      }
    }
  }
}

}  // namespace gyr::testing::graphs_suite
