// SPDX-License-Identifier: BSD-3-Clause
// FP8 GEMMs of linear layers: outputs and both gradients of each projection equal plain loops in double over operands that are rounded from
// the original values, along the summed dimension of each GEMM. Decks that cannot have them are refused.
#include <array>
#include <functional>

#include "modules/layers/projection.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/tensors.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_advice.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::fp8_layers_suite {
namespace {

constexpr std::array recipes{Fp8Recipe::tensor, Fp8Recipe::blocks, Fp8Recipe::mxfp8};

EngineConfig config_of(const std::string& pattern, Fp8Recipe recipe) {
  EngineConfig c;
  c.model = named("T1").model;
  c.model.pattern = pattern;
  c.model.delta = {4, 2, 4, 4, 4, 4};
  c.micro_batch_size = 2, c.seq_length = 12, c.micros = 1;
  c.fp8 = recipe;
  return c;
}

// A matrix in the order of memory.
struct Loops {
  Index rows, columns;
  std::vector<double> values;

  double& operator()(Index r, Index c) { return values[std::size_t(r * columns + c)]; }
  double operator()(Index r, Index c) const { return values[std::size_t(r * columns + c)]; }
};

// x rounded in blocks of this size, to `bits` mantissa bits and exponents from `smallest` on, with power-of-two scales up to 1.75 2^top.
Loops rounded(Loops x, Index block_rows, Index block_columns, bool e5m2) {
  const int bits = e5m2 ? 2 : 3, smallest = e5m2 ? -14 : -6, top = e5m2 ? 15 : 8;
  const double most = std::ldexp(1.75, top);
  for (Index i = 0; i < x.rows; i += block_rows)
    for (Index j = 0; j < x.columns; j += block_columns) {
      const auto each = [&](const std::function<void(double&)>& body) {
        for (Index r = i; r < std::min(i + block_rows, x.rows); ++r)
          for (Index c = j; c < std::min(j + block_columns, x.columns); ++c) body(x(r, c));
      };
      double largest = 0;
      each([&](double& v) { largest = std::max(largest, std::abs(double(float(v)))); });
      const int e = largest == 0 ? 0 : int(std::floor(std::log2(most / largest)));
      each([&](double& v) {
        const double scaled = std::ldexp(double(float(v)), e);
        if (scaled == 0) return;
        const double unit = std::ldexp(1.0, std::max(std::ilogb(scaled), smallest) - bits);
        v = std::ldexp(std::copysign(std::min(std::abs(std::nearbyint(scaled / unit) * unit), most), scaled), -e);
      });
    }
  return x;
}

enum class Sum { over_columns, over_rows };  // dimension of an operand that a GEMM sums over

Loops operand(const Loops& x, Fp8Recipe recipe, Sum sum, bool gradient = false, bool weight = false) {
  if (recipe == Fp8Recipe::tensor) return rounded(x, x.rows, x.columns, gradient);
  if (recipe == Fp8Recipe::blocks && weight) return rounded(x, 128, 128, false);
  const Index extent = recipe == Fp8Recipe::blocks ? 128 : 32;
  return sum == Sum::over_columns ? rounded(x, 1, extent, false) : rounded(x, extent, 1, false);
}

template <class Tensor>
Loops loops_of(const Tensor& x) {
  return {Index(x.extent(0)), Index(x.extent(1)), {x.data(), x.data() + x.span()}};
}

// c = before + 0.75 sum over k of a(k, i) b(k, j)
double multiplied(double before, Index n, const std::function<double(Index)>& a, const std::function<double(Index)>& b) {
  double sum = 0;
  for (Index k = 0; k < n; ++k) sum += a(k) * b(k);
  return before + 0.75 * sum;
}

void expect_plain_loops(Fp8Recipe recipe) {
  EngineConfig config = config_of("-", recipe);
  config.model.hidden_size = 144, config.model.mlp.intermediate_size = 70, config.model.mlp.gated = true;
  config.seq_length = 75;
  Rig<double> rig(config, single_rank_grid(1));
  Device& dev = rig.engine.device();
  const Parameter *gate = nullptr, *up = nullptr;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    if (p->weight.name.find("gate_proj.weight") != std::string::npos) gate = p.get();
    if (p->weight.name.find("up_proj.weight") != std::string::npos) up = p.get();
  }
  ASSERT_TRUE(gate && up);
  Slot& slot = rig.engine.stage().slot(0, 0);
  Pass pass = rig.engine.stage().pass(dev, slot);
  ASSERT_EQ(int(pass.fp8), int(recipe));
  Workbench bench;
  const Index R = 150, K = 144, N = 140;
  const auto x = bench.normal<double>(R, K), y = bench.normal<double>(R, N), dy = bench.normal<double>(R, N), dx = bench.normal<double>(R, K);
  for (Index r = 0; r < R; ++r) x(r, 5) *= 500, dy(r, 3) *= std::ldexp(1.0, int(r % 40) - 20);  // outliers, and rows of different scales
  const Loops w{N, K, {gate->matrix<double>().data(), gate->matrix<double>().data() + N * K}}, x0 = loops_of(x), dy0 = loops_of(dy), y0 = loops_of(y),
                                                                                               dx0 = loops_of(dx);
  for (const Parameter* p : {gate, up}) fill<double>(dev, p->vector_gradient<double>(), 0.5);
  adapted_linear<double>(pass, {gate, up}, x, y, 0.75, 1);
  adapted_linear_backward_input<double>(pass, {gate, up}, dy, dx, 0.75, 1);
  adapted_weights_backward<double>(pass, {gate, up}, dy, x, 0.75);
  const Loops rows = operand(x0, recipe, Sum::over_columns), weight = operand(w, recipe, Sum::over_columns, false, true),
              gradients = operand(dy0, recipe, Sum::over_columns, true), weight_by_rows = operand(w, recipe, Sum::over_rows, false, true),
              gradients_by_rows = operand(dy0, recipe, Sum::over_rows, true), rows_by_rows = operand(x0, recipe, Sum::over_rows);
  const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-11 * (1 + std::abs(b)); };
  int wrong[3] = {};
  for (Index r = 0; r < R; ++r) {
    for (Index n = 0; n < N; ++n)
      wrong[0] += !close(y(r, n), multiplied(
                                      y0(r, n), K, [&](Index k) { return rows(r, k); }, [&](Index k) { return weight(n, k); }));
    for (Index k = 0; k < K; ++k)
      wrong[1] += !close(dx(r, k), multiplied(
                                       dx0(r, k), N, [&](Index n) { return gradients(r, n); }, [&](Index n) { return weight_by_rows(n, k); }));
  }
  const double* const dw = gate->matrix_gradient<double>().data();  // that of up follows
  for (Index n = 0; n < N; ++n)
    for (Index k = 0; k < K; ++k)
      wrong[2] += !close(dw[n * K + k], multiplied(
                                            0.5, R, [&](Index r) { return gradients_by_rows(r, n); }, [&](Index r) { return rows_by_rows(r, k); }));
  EXPECT_EQ(wrong[0], 0) << "y, recipe " << int(recipe);
  EXPECT_EQ(wrong[1], 0) << "dx, recipe " << int(recipe);
  EXPECT_EQ(wrong[2], 0) << "dw, recipe " << int(recipe);
}

TEST(fp8_layers, gemms_equal_loops_over_rounded_operands) {
  for (const Fp8Recipe recipe : recipes) expect_plain_loops(recipe);
}

// x has some of the rows of a micro-batch, as in a partial recomputation. Its outputs are those of all rows, which set the scale.
TEST(fp8_layers, outputs_of_some_rows_are_those_of_all) {
  for (const Fp8Recipe recipe : recipes) {
    EngineConfig config = config_of("-", recipe);
    config.seq_length = 20;
    Rig<double> rig(config, single_rank_grid(1));
    const Parameter* down = nullptr;
    for (const auto& p : rig.engine.stage().parameters().all())
      if (p->weight.name.find("down_proj.weight") != std::string::npos) down = p.get();
    ASSERT_TRUE(down);
    Pass pass = rig.engine.stage().pass(rig.engine.device(), rig.engine.stage().slot(0, 0));
    Workbench bench;
    const auto x = bench.normal<double>(40, down->columns()), all = bench.zeros<double>(40, down->rows()),
               some = bench.zeros<double>(30, down->rows());
    x(2, 1) = 700;
    adapted_linear<double>(pass, {down}, x, all);
    adapted_linear<double>(pass, {down}, rows(x, 10, 30), some, 1, 0, {}, x);
    EXPECT_LT(difference(values_of(some), values_of(rows(all, 10, 30))), 1e-13) << int(recipe);
  }
}

double loss_after(const std::string& pattern, Fp8Recipe recipe, Index steps) {
  Rig<bf16> rig(config_of(pattern, recipe), single_rank_grid(Index(pattern.size())));
  rig.engine.initialise(3);
  const MicroBatch batch = micro_batch(0, 2, 12, rig.engine.model().vocab_size);
  const auto source = [&](int) { return batch; };
  for (Index step = 1; step <= steps; ++step) rig.engine.train(source, 1, {.number = step, .lr = 2e-3});
  return rig.engine.evaluate(source, 1).first / double(2 * 12);
}

TEST(fp8_layers, model_learns_what_bf16_learns) {
  const std::string pattern = "PG*";
  const double start = loss_after(pattern, Fp8Recipe::none, 0), without = loss_after(pattern, Fp8Recipe::none, 40);
  EXPECT_LT(without, 0.9 * start);
  for (const Fp8Recipe recipe : recipes) {
    const double with = loss_after(pattern, recipe, 40);
    EXPECT_NEAR(with, without, 0.02 * start) << int(recipe);
    EXPECT_NE(with, without) << int(recipe);
  }
}

RunConfig read_deck(const std::string& file, const std::vector<std::string>& keys = {}) {
  Deck deck = Deck::read(file, keys);
  return read_run_config(deck, {});
}
RunConfig read(const std::string& text) {
  Folder folder;
  put_contents(folder / "deck.yaml", text);
  return read_deck((folder / "deck.yaml").string());
}

TEST(fp8_layers, log_names_emulation_and_partial_blocks) {
  const auto warnings = [](const std::string& recipe) {
    std::string all;
    for (const std::string& warning : doubtful_settings(read(
             "model: {pattern: '-', hidden_size: 256, mlp: {intermediate_size: 160}}\noptimizer: {warmup_steps: 0}\ntrain: {fp8: " + recipe + "}\n")))
      all += warning + "\n";
    return all;
  };
  const std::string emulated = "train.fp8 is emulated: operands are rounded to FP8 and multiplied in fp32, so steps take longer than without it\n";
  EXPECT_EQ(warnings("none"), "");
  EXPECT_EQ(warnings("tensor"), emulated);
  EXPECT_EQ(warnings("mxfp8"), emulated);
  EXPECT_EQ(warnings("blocks"),
            emulated +
                "train.fp8: the last blocks have less than 128 elements, as if padded with zeros, in down_proj (256 x 160), gate_proj (160 x 256), "
                "up_proj (160 x 256)\n");
}

TEST(fp8_layers, decks_that_contradict_fp8_are_refused) {
  const auto refused = [&](const std::string& keys, const std::string& part, const std::string& file = "") {
    try {
      if (file.empty()) read(keys);
      else read_deck(file, {keys});
      ADD_FAILURE() << keys << " is accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Exit::config);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused("model: {pattern: PE}\ntrain: {fp8: blocks}\n", "train.fp8 = blocks: the model has a layer of type E");
  refused("model: {pattern: P, linear: ternary}\ntrain: {fp8: tensor}\n", "train.fp8 = tensor: ternary linear layers");
  refused("model: {pattern: P}\ntrain: {fp8: e4m3}\n", "mxfp8");
  refused("train.fp8=blocks", "train.fp8 = blocks: policy training compares", GYR_SOURCE_DIR "/input/policy-digits.yaml");
  EXPECT_EQ(int(read("model: {pattern: PM-WG}\ntrain: {fp8: mxfp8}\n").train.fp8), int(Fp8Recipe::mxfp8));
  EXPECT_EQ(int(read("model: {pattern: PE}\n").train.fp8), int(Fp8Recipe::none));
}

}  // namespace
}  // namespace gyr::testing::fp8_layers_suite
