// SPDX-License-Identifier: BSD-3-Clause
// Frozen weights keep their bits and cost neither memory nor GEMMs. The other weights are trained as if nothing were
// frozen.
#include <cmath>
#include <cstring>

#include "modules/cost/flops.hpp"
#include "modules/settings/weight_pattern.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/checkpoint.hpp"

namespace gyr::testing::frozen_suite {
namespace {

using Patterns = std::vector<std::string>;

// All biases and a gated norm, so that every kind of weight occurs.
ModelConfig model() {
  ModelConfig m = named("T2").model;
  m.pattern = "PP*M";
  m.attention.bias = m.mlp.bias = m.mamba.in_bias = m.mamba.out_bias = true;
  return m;
}

EngineConfig config_of(const ModelConfig& model, const Patterns& frozen) {
  EngineConfig c;
  c.model = model;
  c.micro_batch_size = 2, c.seq_length = 11;
  c.optimizer.clip_grad = 0;
  c.optimizer.frozen = frozen;
  return c;
}

MicroBatches batch_of(const ModelConfig& m) {
  return [vocab_size = m.vocab_size](int) { return micro_batch(0, 2, 11, vocab_size); };
}

std::vector<Patterns> choices() {
  return {{"model.layers.*.mamba.*", "lm_head*"},
          {"model.embed_tokens.weight", "model.layers.0.*", "model.layers.1.input_layernorm.weight"},  // backward stops before layer 0
          {"*.feed_forward.*", "*layernorm*"},
          {"*.A_log", "*.mamba.D", "*.conv1d.weight", "*.mamba.norm.weight", "*.mamba.in_proj.bias"},
          {"model.embed*", "model.layers.*"}};  // only the head is trained
}

// Freezes some of several weights that share one gradient GEMM. The remaining GEMMs have other shapes, which a BLAS may
// sum in another order.
std::vector<Patterns> choices_that_split_gemms() {
  return {{"*.self_attn.k_proj.*", "*.self_attn.o_proj.bias", "*.up_proj.*"},
          {"*.dt_bias", "*.conv1d.bias", "*.q_proj.weight", "*.v_proj.bias", "*.gate_proj.weight", "*.out_proj.*"}};
}

std::vector<Patterns> all_choices() {
  std::vector<Patterns> all = choices();
  for (const Patterns& patterns : choices_that_split_gemms()) all.push_back(patterns);
  return all;
}

std::vector<std::byte> bytes_of(const Parameter& p, Index size) {
  const auto* data = p.dtype() == DType::f64   ? static_cast<const void*>(p.vector<double>().data())
                     : p.dtype() == DType::f32 ? static_cast<const void*>(p.vector<float>().data())
                                               : static_cast<const void*>(p.vector<bf16>().data());
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + size * size_of(p.dtype())};
}

template <class T>
void put_bytes(Parameter& p, const std::vector<std::byte>& bytes) {
  void* to = p.dtype() == dtype_of<T>() ? static_cast<void*>(p.vector<T>().data()) : static_cast<void*>(p.vector<Acc<T>>().data());
  std::memcpy(to, bytes.data(), bytes.size());
}

double squares_between(const Parameter& a, const std::vector<std::byte>& b) {
  const auto between = [&]<class S>(Tensor1<S> x) {
    double sum = 0;
    for (Index i = 0; i < a.size(); ++i) {
      S y;
      std::memcpy(&y, b.data() + i * sizeof(S), sizeof(S));
      const double d = double(Acc<S>(x(i))) - double(Acc<S>(y));
      sum += d * d;
    }
    return sum;
  };
  return a.dtype() == DType::f64 ? between(a.vector<double>()) : a.dtype() == DType::f32 ? between(a.vector<float>()) : between(a.vector<bf16>());
}

// Compares three steps with three steps of a run whose frozen weights are restored after every step. `tolerance` bounds
// the distance between both results, relative to the total change of the weights. 0 requires the same bits.
template <class T>
void expect_masked_updates(const Patterns& frozen, double tolerance) {
  const ModelConfig m = model();
  Rig<T> rig(config_of(m, frozen), single_rank_grid(m.layers())), all_trained(config_of(m, {}), single_rank_grid(m.layers()));
  const auto& mine = rig.engine.stage().parameters().all();
  const auto& all = all_trained.engine.stage().parameters().all();
  std::vector<std::vector<std::byte>> start;
  for (const auto& p : all) start.push_back(bytes_of(*p, p->size()));
  for (int step = 1; step <= 3; ++step) {
    rig.engine.train(batch_of(m), 1, step, 1e-2);
    all_trained.engine.train(batch_of(m), 1, step, 1e-2);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (mine[i]->trained) continue;
      EXPECT_NE(bytes_of(*all[i], all[i]->size()), start[i]) << all[i]->weight.name << " did not change in the run without frozen weights";
      put_bytes<T>(*all[i], start[i]);
      if (!all_trained.engine.optimizer().has_master(*all[i])) continue;
      const auto master = all_trained.engine.optimizer().master(*all[i]).values.template as<Acc<T>>();
      for (Index k = 0; k < all[i]->size(); ++k) master(k) = Acc<T>(all[i]->template vector<T>()(k));
    }
  }
  int learning = 0;
  double way = 0, distance = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(mine[i]->trained, !matches_any(frozen, mine[i]->weight.name));
    EXPECT_TRUE(tolerance > 0 || bytes_of(*mine[i], mine[i]->size()) == bytes_of(*all[i], all[i]->size())) << mine[i]->weight.name;
    way += squares_between(*all[i], start[i]);
    distance += squares_between(*mine[i], bytes_of(*all[i], all[i]->size()));
    EXPECT_EQ(bytes_of(*mine[i], mine[i]->size()) == start[i], !mine[i]->trained) << mine[i]->weight.name;
    learning += mine[i]->trained;
  }
  EXPECT_GT(learning, 0);
  EXPECT_LE(std::sqrt(distance), tolerance * std::sqrt(way));
}

TEST(frozen, training_equals_masked_updates_bit_for_bit) {
  for (const Patterns& frozen : choices()) {
    SCOPED_TRACE(frozen.front());
    expect_masked_updates<double>(frozen, 0);
    expect_masked_updates<float>(frozen, 0);
    expect_masked_updates<bf16>(frozen, 0);
  }
}

TEST(frozen, shared_gemm_training_equals_masked_updates_approximately) {
  for (const Patterns& frozen : choices_that_split_gemms()) {
    SCOPED_TRACE(frozen.front());
    expect_masked_updates<double>(frozen, 1e-10);
    expect_masked_updates<float>(frozen, 1e-3);
    expect_masked_updates<bf16>(frozen, 5e-2);
  }
}

// Bytes of the values of a step, which are stored with the weights: eight doubles per updated parameter, rounded up to
// the alignment of an arena.
Index bytes_of_steps(Index updated) { return (updated * 8 * 8 + 255) / 256 * 256; }

TEST(frozen, weights_add_neither_gradient_norm_nor_memory) {
  const ModelConfig m = model();
  Rig<double> all_trained(config_of(m, {}), single_rank_grid(m.layers()));
  all_trained.engine.gradients(batch_of(m), 1, 1);
  const auto gradients = gathered_gradients(all_trained.engine);
  for (const Patterns& frozen : all_choices()) {
    SCOPED_TRACE(frozen.front());
    Rig<double> rig(config_of(m, frozen), single_rank_grid(m.layers()));
    const double norm = rig.engine.gradients(batch_of(m), 1, 1).gradient_norm;
    double squares = 0;
    Index trained = 0, padding = 0, updated = 0, all = 0;
    for (const auto& p : rig.engine.stage().parameters().all()) {
      ++all;
      if (!p->trained) continue;
      for (const double g : gradients.at(p->weight.name)) squares += g * g;
      trained += p->size(), padding += 64, ++updated;
    }
    EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm);
    const Capacity used = rig.engine.measured();
    EXPECT_GE(used.gradients, trained * 8);
    EXPECT_LE(used.gradients, (trained + padding) * 8 + 256);
    EXPECT_LE(used.optimizer, 2 * ((trained + padding) * 8 + 256));
    EXPECT_EQ(used.gradients, rig.capacity.gradients);
    EXPECT_EQ(used.optimizer, rig.capacity.optimizer);
    EXPECT_EQ(used.weights - bytes_of_steps(updated), all_trained.engine.measured().weights - bytes_of_steps(all));
  }
}

// Two FLOPs per weight and row. Only the weight-gradient GEMMs of frozen matrices are skipped, as long as a weight
// below them is trained.
TEST(frozen, weights_need_no_gradient_gemms) {
  const ModelConfig m = model();
  const auto flops = [&](const Patterns& frozen) {
    Rig<float> rig(config_of(m, frozen), single_rank_grid(m.layers()));
    rig.engine.device().clear_work();
    rig.engine.gradients(batch_of(m), 1, 1);
    EXPECT_EQ(rig.engine.device().flops() > 0, true);
    double gemms = 0;
    for (const Work& w : rig.engine.device().work())
      if (std::string(w.kernel) == "gemm") gemms += w.flops;
    return gemms;
  };
  const double all = flops({});
  const Patterns some{"*.k_proj.weight", "*.feed_forward.down_proj.weight", "*.mamba.in_proj.weight"};
  double left_out = 0;
  for (const Weight& w : declared_weights(m))
    if (matches_any(some, w.name)) left_out += 2.0 * 2 * 11 * double(w.size());
  EXPECT_EQ(flops(some), all - left_out);
  // No weight below the head is trained, so the layers run forward only.
  double matrices = 0, head = 0;
  for (const Weight& w : declared_weights(m))
    if (w.shape.size() == 2 && w.name != "model.embed_tokens.weight")
      (w.name == "lm_head.weight" ? head : matrices) += 2.0 * 2 * 11 * double(w.size());
  EXPECT_EQ(all, 3 * (matrices + head));
  EXPECT_EQ(flops({"model.embed*", "model.layers.*"}), matrices + 3 * head);
}

// training_flops, the basis of MFU, leaves out the same GEMMs.
TEST(frozen, weights_are_excluded_from_training_flops) {
  const ModelConfig m = model();
  const auto flops = [&](const Patterns& frozen) { return training_flops(m, 11, config_of(m, frozen).optimizer.trained()); };
  const double forward = forward_flops(m, 11).minimal, head = 2.0 * double(m.hidden_size) * double(m.vocab_size);
  EXPECT_DOUBLE_EQ(flops({}), 3 * forward);
  EXPECT_DOUBLE_EQ(flops({"lm_head.weight"}), 3 * forward - head);
  EXPECT_DOUBLE_EQ(flops({"model.embed*", "model.layers.*"}), forward + 2 * head);
  const double matrix = 2.0 * double(m.attention.num_kv_heads * m.attention.head_dim * m.hidden_size);
  EXPECT_DOUBLE_EQ(flops({"model.layers.2.self_attn.k_proj.*"}), 3 * forward - matrix);
  EXPECT_DOUBLE_EQ(flops({"model.embed*"}), 3 * forward);
}

template <class T>
std::vector<std::vector<std::byte>> state_after(Rig<T>& rig, int first, int last) {
  for (int step = first; step <= last; ++step) rig.engine.train(batch_of(rig.engine.config().model), 1, step, 1e-2);
  std::vector<std::vector<std::byte>> state;
  for (const auto& p : rig.engine.stage().parameters().all()) state.push_back(bytes_of(*p, p->size()));
  return state;
}

CheckpointHeader header_at(Index step) {
  CheckpointHeader header;
  header.step = step;
  header.deck = "x: 1\n";
  return header;
}

template <class T>
void expect_resumes(const Patterns& frozen) {
  const Folder folder;
  const ModelConfig m = model();
  Rig<T> straight(config_of(m, frozen), single_rank_grid(m.layers())), stopped(config_of(m, frozen), single_rank_grid(m.layers())),
      resumed(config_of(m, frozen), single_rank_grid(m.layers()));
  const auto end = state_after(straight, 1, 4);
  state_after(stopped, 1, 2);
  const auto path = save_checkpoint(folder.path(), header_at(2), stopped.engine).path;
  resumed.engine.initialise(5);  // any values: the checkpoint replaces them all
  load_checkpoint(path, resumed.engine, LoadWhat::everything);
  EXPECT_EQ(state_after(resumed, 3, 4), end);
}

TEST(frozen, run_resumes_with_the_same_bits) {
  for (const Patterns& frozen : {choices().front(), choices_that_split_gemms().front()}) {
    expect_resumes<double>(frozen);
    expect_resumes<float>(frozen);
    expect_resumes<bf16>(frozen);
  }
}

// A resumed run may freeze more weights. Weights that were frozen have no Adam moments, so only a new run can train
// them again.
TEST(frozen, weights_are_trainable_again_only_in_new_run) {
  const Folder folder;
  const ModelConfig m = model();
  Rig<bf16> all_trained(config_of(m, {}), single_rank_grid(m.layers())), part(config_of(m, choices()[0]), single_rank_grid(m.layers()));
  state_after(all_trained, 1, 2);
  const auto full = save_checkpoint(folder / "full", header_at(2), all_trained.engine).path;
  EXPECT_EQ(load_checkpoint(full, part.engine, LoadWhat::everything).step, 2);
  for (std::size_t i = 0; i < part.engine.stage().parameters().all().size(); ++i) {
    const auto &p = *part.engine.stage().parameters().all()[i], &q = *all_trained.engine.stage().parameters().all()[i];
    EXPECT_EQ(bytes_of(p, p.size()), bytes_of(q, q.size())) << p.weight.name;
  }
  const auto some = save_checkpoint(folder / "some", header_at(2), part.engine).path;
  const auto load = [&] { load_checkpoint(some, all_trained.engine, LoadWhat::everything); };
  const auto check = [&] { check_checkpoint(some, all_trained.engine); };
  for (const Error& error : {error_of(load), error_of(check)}) {
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find("holds no moments of model.layers.0.mamba"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(check_checkpoint(full, part.engine));
  EXPECT_NO_THROW(load_checkpoint(some, all_trained.engine, LoadWhat::weights));
}

}  // namespace
}  // namespace gyr::testing::frozen_suite
