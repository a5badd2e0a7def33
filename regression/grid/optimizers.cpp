// SPDX-License-Identifier: BSD-3-Clause
// Every registered update rule, alone and mixed with others: after several steps, weights and states on any layout are
// those of one rank; memory and traffic are those of the plan; saved states are read by any layout.
#include <algorithm>
#include <cmath>

#include "modules/cost/flops.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/shared_folder.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/deck/deck.hpp"
#include "src/verify/gathered.hpp"

namespace gyr::testing::optimizers_suite {
namespace {

constexpr Index sequences = 4, seq_length = 16;
constexpr int steps = 5;

// The optimizer that a deck section describes.
OptimizerConfig optimizer_of(const std::string& text, const ModelConfig& model) {
  Deck deck = Deck::parse("optimizer: {" + text + "}", "test.yaml", {});
  std::vector<std::string> names;
  for (const Weight& w : declared_weights(model)) names.push_back(w.name);
  OptimizerConfig c = read_optimizer(deck.section("optimizer", "test"), names);
  c.clip_grad = 0.5;
  return c;
}

// All rules alone, and a mixture in which weights that share a product have different rules.
std::vector<std::string> optimizers() {
  std::vector<std::string> all;
  for (const RuleType& type : rule_types()) all.push_back("name: " + type.name);
  all.push_back("name: lamb, lamb: {exclude: none, max_ratio: 2}");
  all.push_back("name: muon, muon: {split: heads, scale: original, distribute: gather, nesterov: false, coefficients: polar_express, scalar: lamb}");
  all.push_back(
      "name: lion, groups: ['*.in_proj.*', '*.down_proj.*', '*.o_proj.*'], group_rules: [muon, cubic, muon], muon: {split: whole, ns_steps: 3}");
  all.push_back("name: adamw, groups: ['*.q_proj.*', '*.out_proj.*', '*norm*'], group_rules: [lion, lamb, sgd], group_lrs: [0.1, 1, 2]");
  return all;
}

ModelConfig model_of(const std::string& name) {
  ModelConfig m = widened(named(name == "experts" ? "T2" : name));
  if (name != "experts") return m;
  m.pattern = "EE*EE-EM";
  m.moe.experts = 4, m.moe.intermediate_size = 8, m.moe.shared_intermediate_size = 8;
  m.moe.routing = {Routing::softmax, 2, 1, 1, true, 1.0};
  return m;
}

EngineConfig config_of(const ModelConfig& model, const Layout& layout, const OptimizerConfig& optimizer) {
  EngineConfig c;
  c.model = model, c.seq_length = seq_length, c.micro_batch_size = 1;
  c.micros = int(sequences / layout.size(Axis::data));
  c.optimizer = optimizer;
  return c;
}

template <class T>
void train(Rig<T>& rig, int first, int last) {
  const Grid& grid = rig.engine.grid();
  const int data = grid.layout().size(Axis::data), mine = grid.coordinate(Axis::data);
  for (int step = first; step <= last; ++step)
    rig.engine.train([&](int micro) { return micro_batch(100 * step + micro * data + mine, 1, seq_length, rig.engine.model().vocab_size); },
                     rig.engine.config().micros, step, 1e-3);
}

// Everything that is stored with the weights, by content.
std::map<std::string, NamedTensors> state_of(Engine& engine) {
  std::map<std::string, NamedTensors> all;
  std::map<Content, bool> contents{{Content::weight, true}};
  for (const UpdateRule* rule : engine.config().optimizer.rules())
    for (const std::string_view name : rule->states()) contents[Content::state(name)] = true;
  for (const auto& [content, kept] : contents) all[name_of(content)] = gathered(engine, content);
  return all;
}

void expect_equal(const std::map<std::string, NamedTensors>& found, const std::map<std::string, NamedTensors>& wanted, double limit,
                  const std::string& where) {
  ASSERT_EQ(found.size(), wanted.size()) << where;
  for (const auto& [content, tensors] : wanted) {
    ASSERT_EQ(found.at(content).size(), tensors.size()) << where << ": " << content;
    for (const auto& [name, values] : tensors) {
      const std::vector<double>& x = found.at(content).at(name);
      double worst = 0, largest = 1e-300;
      for (std::size_t i = 0; i < values.size(); ++i)
        worst = std::max(worst, std::abs(x[i] - values[i])), largest = std::max(largest, std::abs(values[i]));
      EXPECT_LE(worst, limit * largest) << where << ": " << content << " of " << name;
    }
  }
}

// Rules by element see no other rank: every fourth layout is enough for them.
std::vector<Layout> few(const std::vector<Layout>& all, const std::string& optimizer) {
  for (const char* with_sums_or_matrices : {"lamb", "muon", "cubic"})
    if (optimizer.find(with_sums_or_matrices) != std::string::npos) return all;
  std::vector<Layout> some;
  for (std::size_t i = 0; i < all.size(); i += 4) some.push_back(all[i]);
  return some;
}

std::vector<Layout> layouts(const std::string& name) {
  if (name == "experts") {
    Layout whole = layout_with_context(2, 1, 1, 2), parted = sharded(layout_with_context(4, 1, 1, 2), Shard::weights);
    whole.expert = 2, parted.expert = 2;
    return {whole, parted};
  }
  return {layout_of(1, 1, 2),
          layout_of(1, 1, 8),
          with_sequence(layout_of(2, 1, 4)),
          layout_of(2, 2, 2),
          sharded(layout_of(2, 1, 4), Shard::optimizer),
          sharded(layout_of(4, 2, 1), Shard::gradients),
          sharded(layout_of(2, 2, 2), Shard::weights),
          sharded(with_separate_mixers(with_sequence(layout_of(2, 1, 4)), 2), Shard::optimizer),
          layout_with_context(1, 2, 2, 2)};
}

// T5: tied embeddings, so that two stages update the same weight. T2: two groups of the SSM.
void any_layout_equals_one_rank(const std::string& name) {
  const ModelConfig model = model_of(name);
  for (const std::string& text : optimizers()) {
    const OptimizerConfig optimizer = optimizer_of(text, model);
    Rig<double> one(config_of(model, single_rank_grid(8).layout(), optimizer), single_rank_grid(8));
    train(one, 1, steps);
    const auto wanted = state_of(one.engine);
    for (const Layout& layout : few(layouts(name), text))
      if (Grid* const grid = grid_of(layout)) {
        Rig<double> many(config_of(model, layout, optimizer), *grid);
        train(many, 1, steps);
        expect_equal(state_of(many.engine), wanted, 1e-11, name + " with " + text + " on " + layout.text());
        for (int i = 0; i < memory_categories; ++i)
          EXPECT_LE(many.engine.measured().bytes(Memory(i)), many.capacity.bytes(Memory(i))) << text << " " << name_of(Memory(i));
        EXPECT_EQ(many.engine.measured().optimizer, many.capacity.optimizer) << text;
      }
    sync_ranks();
  }
}

TEST(optimizers, any_layout_equals_one_rank_with_tied_ends) { any_layout_equals_one_rank("T5"); }
TEST(optimizers, any_layout_equals_one_rank_with_two_groups) { any_layout_equals_one_rank("T2"); }
TEST(optimizers, any_layout_equals_one_rank_with_experts) { any_layout_equals_one_rank("experts"); }

// Traffic and memory of a step equal its plan, and LAMB adds one sum of two doubles per weight that it scales.
TEST(optimizers, traffic_and_memory_equal_plan_and_closed_form) {
  const ModelConfig model = model_of("T2");
  for (const std::string& text : optimizers())
    for (const Layout& layout : few(layouts("T2"), text)) {
      Grid* const grid = grid_of(layout);
      if (!grid) continue;
      const EngineConfig config = config_of(model, layout, optimizer_of(text, model));
      const auto ledger = [&](const EngineConfig& c) { return ledger_of(plan_rank(in<double>(c), layout, grid->position()).traffic); };
      Rig<double> rig(config, *grid);
      grid->visit([](Communicator& c) { c.clear_traffic(); });
      train(rig, 1, 1);
      const Ledger counted = ledger_of(traffic_of(*grid));
      EXPECT_EQ(counted, ledger(config)) << text << " on " << layout.text();
      const int shown =
          layout.position_at([&](Axis a) { return a == Axis::data || a == Axis::context ? 0 : layout.coordinate(grid->position(), a); });
      EXPECT_EQ(rig.capacity.working(), predicted_capacity(in<double>(config), layout, shown).working()) << text << " on " << layout.text();
      if (text != "name: lamb") continue;
      Index of_all = 0, of_team = 0;
      for (const auto& p : rig.engine.parameters())
        if (p->weight.decays) ++(p->weight.team.size() > 0 ? of_team : of_all);
      Ledger wanted = ledger(config_of(model, layout, optimizer_of("name: adamw", model)));
      Index bytes = 0;
      for (auto& [key, traffic] : wanted) bytes -= traffic.bytes;
      for (const auto& [key, traffic] : counted) bytes += traffic.bytes;
      const Index tensor = layout.size(Axis::tensor), replicas = layout.shard == Shard::none ? 1 : layout.size(token_axes);
      const Index each = 16 * (of_all + of_team);
      EXPECT_EQ(bytes, each * ((tensor > 1 ? 1 : 0) + (replicas > 1 ? 1 : 0))) << layout.text();
    }
  sync_ranks();
}

// Ranks that hold all weights need no directions: only the transformed matrices travel, from each owner to all others.
TEST(optimizers, replicas_receive_each_transformed_matrix_once) {
  const ModelConfig model = model_of("T2");
  const Layout layout = layout_of(4, 1, 1);
  if (Grid* const grid = grid_of(layout)) {
    const EngineConfig config = config_of(model, layout, optimizer_of("name: muon", model));
    Rig<double> rig(config, *grid);
    grid->visit([](Communicator& c) { c.clear_traffic(); });
    train(rig, 1, 1);
    double matrices = 0;
    for (const auto& p : rig.engine.parameters())
      if (config.optimizer.rule_of(p->weight).name() == "muon") matrices += double(p->weight.size());
    const double sent = double(grid->holders(HeldBy::all).traffic(Operation::all_to_all).bytes);
    EXPECT_EQ(grid->world().sum(sent), 3 * 8 * matrices);
  }
  sync_ranks();
}

// States that one layout saved have the same bits on any other layout.
TEST(optimizers, saved_states_are_read_by_any_layout) {
  const ModelConfig model = model_of("T2");
  const SharedFolder folder;
  int number = 0;
  for (const std::string& text : {std::string("name: summing"), optimizers().back()}) {
    const OptimizerConfig optimizer = optimizer_of(text, model);
    const auto on = [&](const Layout& layout, const auto& f) {
      if (Grid* const grid = grid_of(layout)) {
        Rig<bf16> rig(config_of(model, layout, optimizer), *grid);
        f(rig.engine);
      }
      sync_ranks();
    };
    const auto here = folder / std::to_string(number++);
    on(sharded(layout_of(2, 1, 4), Shard::gradients), [&](Engine& engine) {
      set_state(engine, 1);
      CheckpointHeader header;
      header.step = 1, header.deck = "{}";
      save_checkpoint(here, header, engine);
    });
    for (const Layout& layout : {layout_of(1, 1, 1), layout_of(1, 4, 2), sharded(layout_of(2, 2, 2), Shard::weights)})
      on(layout, [&](Engine& engine) {
        set_state(engine, 2);
        load_checkpoint(checkpoint_path(here, 1), engine, LoadWhat::everything);
        expect_state(engine, 1, text + " on " + layout.text());
      });
  }
}

// States of another rule are refused by the names of weights and rules, and change nothing.
TEST(optimizers, states_of_another_rule_are_refused) {
  const ModelConfig model = model_of("T2");
  const SharedFolder folder;
  const auto grid = grid_of(layout_of(2, 2, 2));
  const auto engine_of = [&](const std::string& text) {
    return std::make_unique<Rig<float>>(config_of(model, grid->layout(), optimizer_of(text, model)), *grid);
  };
  const auto saved = engine_of("name: adamw");
  set_state(saved->engine, 1);
  CheckpointHeader header;
  header.step = 1, header.deck = "{}";
  save_checkpoint(folder.path(), header, saved->engine);
  for (const std::string& text : {std::string("name: lion"), std::string("groups: ['*.q_proj.*'], group_rules: [lion]")}) {
    const auto other = engine_of(text);
    set_state(other->engine, 2);
    try {
      load_checkpoint(checkpoint_path(folder.path(), 1), other->engine, LoadWhat::everything);
      ADD_FAILURE() << text << " is accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Exit::config);
      std::vector<std::string> words{"first_moment and second_moment", "lion keeps momentum", "optimizer.name"};
      if (text != "name: lion") words.push_back("layers.2.self_attn.q_proj.weight");
      for (const std::string& word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
    expect_state(other->engine, 2, text);
  }
  const auto same_states = engine_of("name: lamb");
  set_state(same_states->engine, 2);
  load_checkpoint(checkpoint_path(folder.path(), 1), same_states->engine, LoadWhat::everything);
  expect_state(same_states->engine, 1, "LAMB keeps what AdamW keeps");
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::optimizers_suite
