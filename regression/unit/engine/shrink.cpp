// SPDX-License-Identifier: BSD-3-Clause
// Shrinking of the published decks, with random grids and sizes (seed 1; GYR_SEED=2 for others). In the shrunk model
// every weight is sharded over the tensor-parallel group as before. An extent that divides, leaves a remainder or is
// held by several ranks stays so.
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "modules/settings/weight_pattern.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/train/engine_config.hpp"
#include "src/verify/shrink.hpp"

#include "modules/cost/flops.hpp"

namespace gyr::testing::shrink_suite {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  Index between(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  template <class V>
  V of(const std::vector<V>& all) {
    return all[std::size_t(between(0, Index(all.size()) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

std::vector<std::string> published() {
  std::vector<std::string> decks;
  for (const auto& entry : std::filesystem::directory_iterator(GYR_SOURCE_DIR "/input"))
    if (entry.path().extension() == ".yaml") decks.push_back(entry.path());
  std::sort(decks.begin(), decks.end());
  return decks;
}

struct Drawn {
  std::vector<std::string> words;  // deck file and overrides
  RunConfig run;
  Layout layout;
};

// Empty if the drawn settings are invalid.
std::optional<Drawn> draw(Dice& dice, const std::string& deck) {
  const Index tensor = dice.of<Index>({1, 2, 3, 4, 6, 8, 16}), pipeline = dice.of<Index>({1, 1, 2, 3, 4}), context = dice.of<Index>({1, 1, 2, 3, 4}),
              data = dice.of<Index>({1, 2, 3}), micro = dice.between(1, 3), virtual_stages = pipeline > 1 ? dice.of<Index>({1, 1, 2, 3}) : 1;
  std::vector<std::string> words{fmt::format("parallel.tensor={}", tensor),
                                 fmt::format("parallel.pipeline={}", pipeline),
                                 fmt::format("parallel.context={}", context),
                                 fmt::format("parallel.data={}", data),
                                 fmt::format("parallel.virtual_stages={}", virtual_stages),
                                 fmt::format("parallel.mixer={}", dice.of<std::string>({"split", "auto"})),
                                 fmt::format("parallel.context_mode={}", dice.of<std::string>({"ring", "ring", "heads"})),
                                 fmt::format("parallel.shard={}", dice.of<std::string>({"none", "optimizer", "gradients", "weights"})),
                                 fmt::format("parallel.bucket={}", dice.of<Index>({1, 32, 1 << 20})),
                                 fmt::format("train.micro_batch_size={}", micro),
                                 fmt::format("train.global_batch_size={}", micro * data * dice.between(1, 20)),
                                 "train.ramp=[]"};
  const auto perhaps = [&](double p, const std::string& word) {
    if (dice.chance(p)) words.push_back(word);
  };
  if (tensor > 1) perhaps(0.4, "parallel.sequence=true");
  perhaps(0.5, fmt::format("train.seq_length={}", dice.between(20, 5000)));
  perhaps(0.5, fmt::format("model.vocab_size={}", dice.between(40, 70000)));
  perhaps(0.5, fmt::format("model.mlp.intermediate_size={}", tensor * dice.between(1, 700)));
  perhaps(0.3, fmt::format("model.mamba.chunk_size={}", dice.between(1, 300)));
  perhaps(0.5, fmt::format("model.window.size={}", dice.between(1, 6000)));
  perhaps(0.3, fmt::format("model.mamba.head_dim={}", dice.between(1, 100)));
  perhaps(0.3, fmt::format("model.attention.head_dim={}", 2 * dice.between(1, 70)));
  if (deck.find("t5") != std::string::npos && dice.chance(0.7))
    words.insert(words.end(), {fmt::format("model.encoder.hidden_size={}", dice.between(20, 900)),
                               fmt::format("model.encoder.attention.head_dim={}", 2 * dice.between(1, 70)),
                               fmt::format("model.encoder.mlp.intermediate_size={}", tensor * dice.between(1, 700))});
  const Index keys = dice.of<Index>({1, 2, 3, 4, 8}), groups = dice.of<Index>({1, 2, 4});
  if (dice.chance(0.5))
    words.insert(words.end(),
                 {fmt::format("model.attention.num_kv_heads={}", keys), fmt::format("model.attention.num_heads={}", keys * dice.between(1, 12))});
  if (dice.chance(0.5))
    words.insert(words.end(),
                 {fmt::format("model.mamba.num_groups={}", groups), fmt::format("model.mamba.num_heads={}", groups * dice.between(1, 16))});
  if (dice.chance(0.3))
    words.insert(words.end(),
                 {fmt::format("model.delta.num_key_heads={}", groups), fmt::format("model.delta.num_heads={}", groups * dice.between(1, 16))});
  perhaps(0.3, fmt::format("model.delta.conv_kernel={}", dice.between(2, 16)));
  perhaps(0.3, "model.pattern=" +
                   dice.of<std::string>({"PM*-PPPPMM--", "PPPPM*MMMMMMM", "M*M*MWM*M*M*", "W-*-W-*-W-*-", "------------P", "G-*-GG-G*-G-"}));
  perhaps(0.3, "optimizer.frozen=[\"model.layers.1.*\", \"*norm*\", \"model.layers.5.*\"]");
  perhaps(0.3, "optimizer.groups=[\"model.layers.2.*\", \"*layernorm*\"]");
  try {
    Deck text = Deck::read(deck, words);
    RunConfig run = read_run_config(text);
    text.finish();
    Layout layout = layout_of(run, int(tensor * pipeline * context * data));
    words.insert(words.begin(), deck);
    return Drawn{words, std::move(run), std::move(layout)};
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::config) << error.what();
    return {};
  }
}

// Describes how a tensor-parallel rank holds a weight, independently of the weight's extents.
std::string holding(const Weight& w, int ranks, int rank) {
  Coordinates at;
  at[Axis::tensor] = {ranks, rank};
  const Placement p = place(w, at);
  std::string text;
  Index covered = 0;
  for (const Held& held : p.boxes) {
    covered += elements(held.box.count);
    text += fmt::format("[copy {} of {}{}]", held.copy().rank, held.copy().ranks, held.box.count == w.shape ? ", unsharded" : "");
  }
  return text + (covered < elements(p.shape) ? " and padding" : "");
}

std::string in_layer(const std::string& name, Index layer, Index other) {
  const std::string mine = fmt::format("model.layers.{}.", layer);
  return name.starts_with(mine) ? fmt::format("model.layers.{}.{}", other, name.substr(mine.size())) : name;
}

Index layer_of(const std::string& name) {
  const std::string layers = "model.layers.";
  return name.starts_with(layers) ? std::stoll(name.substr(layers.size())) : -1;
}

std::pair<double, double> factors(const OptimizerConfig& o, const std::string& name) {
  std::pair<double, double> found{1, 1};
  for (const ParameterGroup& g : o.groups)
    if (matches(g.pattern, name)) found = {g.lr_factor, g.weight_decay_factor};
  return found;
}

void expect_same_weights(const RunConfig& deck, const Layout& layout, const Shrunk& small, const Layout& after, const std::string& where) {
  std::map<std::string, Weight> of_deck;
  for (const PlacedTensor& t : model_weights(deck.model, DType::f32, layout)) of_deck.emplace(t.weight.name, t.weight);
  const int tensor = layout.size(Axis::tensor);
  for (const PlacedTensor& t : model_weights(small.run.model, DType::f32, after)) {
    const Weight& w = t.weight;
    const Index layer = layer_of(w.name);
    const std::string name = layer < 0 ? w.name : in_layer(w.name, layer, small.from.at(std::size_t(layer)));
    ASSERT_TRUE(of_deck.contains(name)) << where << name;
    const Weight& was = of_deck.at(name);
    EXPECT_EQ(deck.optimizer.trained()(was), small.run.optimizer.trained()(w)) << where << name;
    EXPECT_EQ(factors(deck.optimizer, name), factors(small.run.optimizer, w.name)) << where << name;
    for (int rank = 0; rank < tensor; ++rank) ASSERT_EQ(holding(was, tensor, rank), holding(w, tensor, rank)) << where << name << " on " << rank;
  }
}

void expect_same_stages(const RunConfig& deck, const Layout& layout, const Shrunk& small, const Layout& after, const std::string& where) {
  ASSERT_EQ(layout.stages.size(), after.stages.size());
  for (std::size_t s = 0; s < layout.stages.size(); ++s) {
    const auto types = [&](const RunConfig& run, const Span& stage) {
      const std::string layers = run.model.pattern.substr(std::size_t(stage.first), std::size_t(stage.size()));
      return std::set<char>(layers.begin(), layers.end());
    };
    EXPECT_EQ(types(deck, layout.stages[s]), types(small.run, after.stages[s])) << where << "stage " << s;
    EXPECT_EQ(std::min<Index>(2, layout.stages[s].size()), std::min<Index>(2, after.stages[s].size())) << where << "stage " << s;
    for (Index layer = after.stages[s].first; layer < after.stages[s].last; ++layer) {
      const Index from = small.from.at(std::size_t(layer));
      EXPECT_TRUE(from >= layout.stages[s].first && from < layout.stages[s].last) << where << layer;
    }
  }
}

void expect_same_tokens(const RunConfig& deck, const Layout& layout, const RunConfig& small, const std::string& where) {
  const Index tensor = layout.size(Axis::tensor), pipeline = layout.size(Axis::pipeline), context = layout.size(Axis::context);
  const Index blocks = context == 1 ? 1 : context * (deck.parallel.context_mode == ContextMode::ring ? 2 : 1);
  const auto padded = [&](Index length) { return (length + blocks - 1) / blocks * blocks / context; };
  const TrainConfig &a = deck.train, &b = small.train;
  EXPECT_EQ(a.seq_length % blocks, b.seq_length % blocks) << where;
  EXPECT_EQ(a.micro_batch_size * padded(a.seq_length) % tensor, b.micro_batch_size * padded(b.seq_length) % tensor) << where;
  EXPECT_EQ(a.micro_batch_size > 1, b.micro_batch_size > 1) << where;
  const Index data = layout.size(Axis::data), m = a.global_batch_size / data / a.micro_batch_size,
              n = b.global_batch_size / data / b.micro_batch_size;
  EXPECT_EQ(b.global_batch_size % (data * b.micro_batch_size), 0) << where;
  EXPECT_EQ(m % pipeline, n % pipeline) << where;
  EXPECT_EQ(m > pipeline, n > pipeline) << where;
  EXPECT_EQ(m > 1, n > 1) << where;
}

void expect_smaller(const RunConfig& deck, const RunConfig& small, const std::string& where) {
  const ModelConfig &a = deck.model, &b = small.model;
  for (const auto& [was, is] : {std::pair{a.vocab_size, b.vocab_size},
                                {a.hidden_size, b.hidden_size},
                                {a.attention.num_heads, b.attention.num_heads},
                                {a.attention.num_kv_heads, b.attention.num_kv_heads},
                                {a.attention.head_dim, b.attention.head_dim},
                                {a.latent.num_heads, b.latent.num_heads},
                                {a.mamba.num_heads, b.mamba.num_heads},
                                {a.mamba.num_groups, b.mamba.num_groups},
                                {a.mamba.head_dim, b.mamba.head_dim},
                                {a.mamba.state_size, b.mamba.state_size},
                                {a.delta.num_heads, b.delta.num_heads},
                                {a.delta.num_key_heads, b.delta.num_key_heads},
                                {a.delta.head_dim, b.delta.head_dim},
                                {a.mlp.intermediate_size, b.mlp.intermediate_size},
                                {deck.train.seq_length, small.train.seq_length},
                                {deck.train.global_batch_size, small.train.global_batch_size}})
    EXPECT_LE(is, was) << where;
  if (a.pattern.find('L') != std::string::npos) {
    EXPECT_LE(std::max({b.latent.head_dim, b.latent.rope_dim, b.latent.v_head_dim, b.latent.q_rank, b.latent.kv_rank}), 24) << where;
  }
  EXPECT_LE(b.vocab_size, std::min<Index>(a.vocab_size, 400)) << where;  // 16 ranks squared, plus a remainder
  EXPECT_LE(small.train.seq_length, std::min<Index>(deck.train.seq_length, 400)) << where;
}

bool refused(const RunConfig& run, const Layout& layout, int position) {
  try {
    plan_rank(engine_config(run, layout), layout, position);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::config) << error.what();
    return true;
  }
}

TEST(shrink, shrunk_decks_keep_their_sharding_and_schedule) {
  const char* given = std::getenv("GYR_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 1;
  Dice dice(seed);
  const auto decks = published();
  ASSERT_GE(decks.size(), 9u);
  int drawn = 0, planned = 0;
  for (int i = 0; i < 700 && !HasFailure(); ++i) {
    const auto d = draw(dice, decks[std::size_t(i) % decks.size()]);
    if (!d) continue;
    ++drawn;
    const std::string where = fmt::format("seed {}, draw {}: {}\n", seed, i, fmt::join(d->words, " "));
    const Shrunk small = shrunk(d->run, d->layout);
    const Layout after = layout_of(small.run, d->layout.ranks());
    EXPECT_EQ(divisibility_of(d->run, d->layout), divisibility_of(small.run, after)) << where;
    EXPECT_EQ(d->layout.text(), after.text()) << where;
    EXPECT_EQ(d->run.parallel.schedule(), small.run.parallel.schedule()) << where;
    EXPECT_EQ(d->run.recompute, small.run.recompute) << where;
    expect_same_weights(d->run, d->layout, small, after, where);
    expect_same_stages(d->run, d->layout, small, after, where);
    expect_same_tokens(d->run, d->layout, small.run, where);
    expect_smaller(d->run, small.run, where);
    if (i % 29 == 0) {
      const int position = int(dice.between(0, after.ranks() - 1));
      EXPECT_EQ(refused(d->run, d->layout, position), refused(small.run, after, position)) << where;
      ++planned;
    }
  }
  RecordProperty("drawn", drawn);
  EXPECT_GT(drawn, 150);
  EXPECT_GT(planned, 5);
}

}  // namespace
}  // namespace gyr::testing::shrink_suite
