// SPDX-License-Identifier: BSD-3-Clause
// Ternary linear layers: outputs, input gradients and weight gradients of each projection equal plain loops in double, from the quantized
// weight and the quantized rows. Decks that cannot have ternary layers are refused.
#include <random>

#include "modules/layers/projection.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/tensors.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::ternary_layers_suite {
namespace {

ModelConfig ternary(const std::string& pattern) {
  ModelConfig m = named("T1").model;
  m.pattern = pattern, m.linear = LinearLayers::ternary;
  m.delta = {4, 2, 4, 4, 4, 4};
  return m;
}

EngineConfig config_of(const ModelConfig& m) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = 2, c.seq_length = 12, c.micros = 1;
  return c;
}

// Rows of a matrix in the order of memory.
using Loops = std::vector<std::vector<double>>;

// W^ of a part of the rows of a weight, with one scale.
void quantize_loop(Loops& w, Index first, Index count) {
  double sum = 0, elements = 0;
  for (Index r = first; r < first + count; ++r)
    for (const double v : w[r]) sum += std::abs(v), elements += 1;
  const double scale = 1 / std::max(sum / elements, 1e-5);
  for (Index r = first; r < first + count; ++r)
    for (double& v : w[r]) v = std::min(std::max(std::nearbyint(v * scale), -1.0), 1.0) / scale;
}
Loops quantized_rows(Loops x) {
  for (auto& row : x) {
    double most = 1e-5;
    for (const double v : row) most = std::max(most, std::abs(v));
    for (double& v : row) v = std::nearbyint(v * 127 / most) * most / 127;
  }
  return x;
}
Loops rows_of(const double* data, Index rows, Index columns) {
  Loops all;
  for (Index r = 0; r < rows; ++r) all.emplace_back(data + r * columns, data + (r + 1) * columns);
  return all;
}
double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A projection of a layer: its adjacent weights by name, and the rows of each part that has a scale of its own.
struct Projection {
  const char* pattern;
  std::vector<const char*> weights;
  std::vector<Index> sections;
};

template <std::size_t... I>
void call(const auto& body, const std::vector<const Parameter*>& w, std::index_sequence<I...>) {
  body(Adjacent{w[I]...});
}
void with_adjacent(const std::vector<const Parameter*>& w, const auto& body) {
  if (w.size() == 1) call(body, w, std::make_index_sequence<1>());
  else if (w.size() == 2) call(body, w, std::make_index_sequence<2>());
  else if (w.size() == 3) call(body, w, std::make_index_sequence<3>());
  else call(body, w, std::make_index_sequence<6>());
}

void expect_plain_loops(const Projection& projection) {
  const ModelConfig m = ternary(projection.pattern);
  Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
  Device& dev = rig.engine.device();
  std::vector<const Parameter*> weights;
  for (const char* name : projection.weights)
    for (const auto& p : rig.engine.stage().parameters().all())
      if (p->weight.name.find(name) != std::string::npos) weights.push_back(p.get());
  ASSERT_EQ(weights.size(), projection.weights.size()) << projection.weights[0];
  Slot& slot = rig.engine.stage().slot(0, 0);
  Pass pass = rig.engine.stage().pass(dev, slot);
  Workbench bench;
  const Index R = 5, K = weights[0]->columns();
  Loops w;
  for (const Parameter* p : weights)
    for (auto& row : rows_of(p->matrix<double>().data(), p->rows(), K)) w.push_back(row);
  const Index N = Index(w.size());
  Index first = 0;
  for (const Index rows : projection.sections) quantize_loop(w, first, rows), first += rows;
  ASSERT_EQ(first, N) << projection.weights[0];
  const auto x = bench.normal<double>(R, K), y = bench.normal<double>(R, N), dy = bench.normal<double>(R, N), dx = bench.normal<double>(R, K);
  const Loops x_hat = quantized_rows(rows_of(x.data(), R, K)), y_before = rows_of(y.data(), R, N), dx_before = rows_of(dx.data(), R, K),
              dy_rows = rows_of(dy.data(), R, N);
  for (const Parameter* p : weights) fill<double>(dev, p->vector_gradient<double>(), 0.5);
  with_adjacent(weights, [&](Adjacent all) {
    adapted_linear<double>(pass, all, x, y, 0.75, 1);
    adapted_linear_backward_input<double>(pass, all, dy, dx, 0.75, 1);
    adapted_weights_backward<double>(pass, all, dy, x, 0.75);
  });
  for (Index r = 0; r < R; ++r) {
    for (Index n = 0; n < N; ++n) EXPECT_NEAR(y(r, n), y_before[r][n] + 0.75 * product(x_hat[r], w[n]), 1e-12) << projection.weights[0];
    for (Index k = 0; k < K; ++k) {
      double sum = dx_before[r][k];
      for (Index n = 0; n < N; ++n) sum += 0.75 * dy_rows[r][n] * w[n][k];
      EXPECT_NEAR(dx(r, k), sum, 1e-12) << projection.weights[0];
    }
  }
  Index n = 0;
  for (const Parameter* p : weights)
    for (Index row = 0; row < p->rows(); ++row, ++n)
      for (Index k = 0; k < K; ++k) {
        double sum = 0.5;
        for (Index r = 0; r < R; ++r) sum += 0.75 * dy_rows[r][n] * x_hat[r][k];
        EXPECT_NEAR(p->matrix_gradient<double>()(row, k), sum, 1e-12) << p->weight.name;
      }
}

TEST(ternary_layers, projections_equal_plain_loops) {
  const ModelConfig m = ternary("*");
  const AttentionConfig& a = m.attention;
  const Index q = a.num_heads * a.head_dim, k = a.num_kv_heads * a.head_dim, d = m.hidden_size, f = m.mlp.intermediate_size;
  const MambaConfig& s = m.mamba;
  const Index group = s.num_groups * s.state_size, key = m.delta.num_key_heads * m.delta.key_dim, value = m.delta.inner();
  expect_plain_loops({"*", {"q_proj", "k_proj", "v_proj"}, {q, k, k}});
  expect_plain_loops({"*", {"o_proj"}, {d}});
  expect_plain_loops({"-", {"gate_proj", "up_proj"}, {f, f}});
  expect_plain_loops({"-", {"down_proj"}, {d}});
  expect_plain_loops({"M", {"in_proj"}, {s.inner(), s.inner(), group, group, s.num_heads}});
  expect_plain_loops({"M", {"out_proj"}, {d}});
  expect_plain_loops(
      {"G", {".q_proj", ".k_proj", ".v_proj", ".z_proj", ".b_proj", ".a_proj"}, {key, key, value, value, m.delta.num_heads, m.delta.num_heads}});
}

// The head, the embedding and vectors keep their values.
TEST(ternary_layers, only_weights_of_linear_layers_are_ternary) {
  const ModelConfig m = ternary("P*W-BGM");
  Rig<float> rig(config_of(m), single_rank_grid(m.layers()));
  for (const auto& p : rig.engine.stage().parameters().all())
    EXPECT_EQ(p->ternary, p->weight.name.find("_proj.weight") != std::string::npos) << p->weight.name;
}

TEST(ternary_layers, ternary_model_learns_a_batch) {
  const ModelConfig m = ternary("P");
  Rig<float> rig(config_of(m), single_rank_grid(1));
  rig.engine.initialise(3);
  const MicroBatch batch = micro_batch(0, 2, 12, m.vocab_size);
  const auto source = [&](int) { return batch; };
  const double before = rig.engine.evaluate(source, 1).first;
  for (Index step = 1; step <= 60; ++step) rig.engine.train(source, 1, {.number = step, .lr = 1e-2});
  EXPECT_LT(rig.engine.evaluate(source, 1).first, 0.7 * before);
}

TEST(ternary_layers, decks_that_contradict_ternary_layers_are_refused) {
  const auto refused = [](const std::string& keys, const std::string& part) {
    Folder folder;
    put_contents(folder / "deck.yaml", "model: {pattern: P, linear: ternary, " + keys);
    Deck deck = Deck::read((folder / "deck.yaml").string(), {});
    try {
      read_run_config(deck, {});
      ADD_FAILURE() << keys << " is accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Exit::config);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused("}\nfinetune: {lora: {rank: 4}}\n", "finetune.lora.rank = 4: ternary linear layers (model.linear) take no adapters");
  ModelConfig m = ternary("PLE");
  for (const char* pattern : {"PL", "PE", "*->*X-"}) {
    m.pattern = pattern;
    EXPECT_THROW(check(m), Error) << pattern;
  }
  m.linear = LinearLayers::full;
  EXPECT_NO_THROW(check(m));
  const ModelConfig p = ternary("P");
  const auto grid = [&](Factors factors) { Stage(p, DType::f32, single_rank_grid(1), {}, {}, factors); };
  EXPECT_THROW(grid(Factors::int8), Error);
  EXPECT_NO_THROW(grid(Factors::stored));
}

}  // namespace
}  // namespace gyr::testing::ternary_layers_suite
