// SPDX-License-Identifier: BSD-3-Clause
// Settings of a run: the batch size follows its ramp, the grid uses the available ranks, and an invalid setting is
// refused with an error that names a valid one.
#include "src/config/run_config.hpp"
#include "src/config/run_advice.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <regex>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/config/layout_rules.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/feed.hpp"

namespace gyr::run_config_suite {
namespace {

RunConfig run_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Deck deck = Deck::parse(text, "test.yaml", overrides);
  RunConfig run = read_run_config(deck);
  deck.finish();
  return run;
}

const std::string ramped = "train: {ramp: [\"0:16\", \"1000:32\", \"1e6:64\"], global_batch_size: 8, seq_length: 10}\nmodel: {pattern: P x 8}\n";

void expect_refused(const std::function<void()>& what, std::initializer_list<const char*> parts) {
  try {
    what();
    FAIL() << "an invalid setting was not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config);
    for (const char* part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(run_config, batch_size_follows_its_ramp) {
  const RunConfig run = run_of(ramped);
  for (const auto& [tokens, batch] : std::vector<std::pair<double, Index>>{{0, 16}, {999, 16}, {1000, 32}, {999999, 32}, {1e6, 64}, {1e15, 64}})
    EXPECT_EQ(run.batch_after(tokens), batch) << tokens;
  EXPECT_EQ(run.largest_batch(), 64);
  const RunConfig plain = run_of("train: {global_batch_size: 8}");
  EXPECT_EQ(plain.batch_after(0), 8);
  EXPECT_EQ(plain.batch_after(1e15), 8);
  EXPECT_EQ(plain.largest_batch(), 8);
}

// The largest batch of a ramp need not be its last one. The engine is sized for the largest.
TEST(run_config, engine_is_sized_for_the_largest_batch) {
  const RunConfig run = run_of("train: {ramp: [\"0:16\", \"10:64\", \"20:8\"], micro_batch_size: 2, seq_length: 10}\nmodel: {pattern: P x 8}");
  EXPECT_EQ(run.largest_batch(), 64);
  EXPECT_EQ(engine_config(run, layout_of(run, 4)).micros, 8);
}

TEST(run_config, sequences_longer_than_learned_positions_are_refused) {
  EXPECT_EQ(run_of("model: {positions: 16}\ntrain: {seq_length: 16}").model.positions, 16);
  expect_refused([] { run_of("model: {positions: 16}\ntrain: {seq_length: 17}"); },
                 {"train.seq_length", "model.positions", "17 tokens", "16 learned positions"});
}

// Span corruption removes spans anywhere in a sample. A sample must therefore be a single text of at least two tokens
// without padding.
TEST(run_config, span_corruption_refuses_padding_and_separate_documents) {
  const std::string deck = "model: {pattern: '*>*X', hidden_size: 16}\ntrain: {objective: span_corruption, seq_length: 8}\n";
  EXPECT_EQ(run_of(deck).data.order, "shuffled");
  expect_refused([&] { run_of(deck, {"train.seq_length=1"}); }, {"too short for span corruption", "train.seq_length"});
  expect_refused([&] { run_of(deck, {"data.documents=separate"}); }, {"data.documents = separate"});
  expect_refused([&] { check_padding(run_of(deck, {"data.order=documents"})); }, {"data.order = documents", "padding", "shuffled"});
}

// A seq2seq sample is a pair of an encoder input and a target text, each of any length up to the limit in the deck.
TEST(run_config, seq2seq_lengths_and_conflicting_keys_are_checked) {
  const std::string deck = "model: {pattern: '*>*X', hidden_size: 16}\ntrain: {objective: seq2seq, seq_length: 8}\ndata: {order: documents}\n";
  EXPECT_EQ(run_of(deck).lengths().source, 8);
  const RunConfig run = run_of(deck, {"train.seq2seq.source_length=20"});
  check_padding(run);
  EXPECT_EQ(run.lengths().source, 20);
  EXPECT_EQ(run.lengths().text, 8);
  expect_refused([&] { run_of(deck, {"data.order=shuffled"}); }, {"train.objective = seq2seq", "data.order"});
  expect_refused([&] { run_of(deck, {"data.documents=separate"}); }, {"data.documents = separate"});
  expect_refused([&] { run_of(deck, {"model.pattern=*-"}); }, {"train.objective = seq2seq", "no encoder"});
  expect_refused([&] { run_of(deck, {"train.seq2seq.end_token=40000", "model.vocab_size=300"}); }, {"train.seq2seq.end_token = 40000", "300"});
}

// model.encoder holds what differs from the model. Null and absent keys follow the model, and the effective deck reads back
// to the same sizes.
TEST(run_config, encoder_takes_sizes_of_its_own) {
  const std::string deck =
      "model: {pattern: '*->*X-', hidden_size: 32, attention: {num_heads: 4, num_kv_heads: 2, head_dim: 8}, mlp: {intermediate_size: 64},\n"
      "        encoder: {hidden_size: 16, norm: layer, rms_norm_eps: null, attention: {num_heads: 2}, mlp: {intermediate_size: 24}}}\n"
      "train: {objective: seq2seq, seq_length: 8}\ndata: {order: documents}\n";
  Deck first = Deck::parse(deck, "test.yaml");
  const ModelConfig m = read_run_config(first).model, again = run_of(first.effective()).model;
  for (const ModelConfig& model : {m, again}) {
    const ModelConfig encoder = encoder_config(model);
    EXPECT_EQ(encoder.hidden_size, 16);
    EXPECT_EQ(encoder.norm, NormType::layer);
    EXPECT_EQ(encoder.rms_norm_eps, model.rms_norm_eps);
    EXPECT_EQ(encoder.attention.num_heads, 2);
    EXPECT_EQ(encoder.attention.num_kv_heads, 2);
    EXPECT_EQ(encoder.attention.head_dim, 8);
    EXPECT_EQ(encoder.mlp.intermediate_size, 24);
    EXPECT_EQ(model.hidden_size, 32);
    EXPECT_EQ(model.norm, NormType::rms);
  }
  EXPECT_FALSE(run_of("model: {pattern: '*>*X', encoder: {hidden_size: null}}\ntrain: {objective: span_corruption}").model.encoder);
  expect_refused([] { run_of("model: {pattern: '*-', encoder: {hidden_size: 16}}"); }, {"model.encoder.hidden_size = 16", "no encoder"});
  const std::string retro = "train: {seq_length: 64}\nmodel: {encoder: {hidden_size: 16}, retrieval: {chunk: 16}, pattern: ";
  EXPECT_EQ(encoder_config(run_of(retro + "'*R-'}").model).hidden_size, 16);
  EXPECT_EQ(encoder_config(run_of(retro + "'*-*-*-*-*-*-'}\nretro: {layers: auto}").model).hidden_size, 16);
  expect_refused([&] { run_of(retro + "'*R-', attention: {num_kv_heads: 1, num_heads: 2}}", {"model.encoder.attention.num_kv_heads=3"}); },
                 {"num_kv_heads", "divide"});
  expect_refused([&] { run_of(deck, {"model.encoder.attention.num_heads=3"}); }, {"num_kv_heads", "divide"});
  expect_refused([&] { run_of(deck, {"model.encoder.hidden_size=0"}); }, {"model.encoder.hidden_size", "> 0"});
  expect_refused(
      [&] {
        run_of(deck, {"model.encoder.attention.num_heads=1048576", "model.encoder.attention.head_dim=1048576"});
      },
      {"model.encoder.attention.num_heads", "channels"});
}

// Settings of an update rule that no weight has are reported; a rule of a group reads its own.
TEST(run_config, keys_of_other_update_rules_are_reported) {
  const auto idle = [](const std::string& text) {
    Deck deck = Deck::parse("optimizer:\n" + text, "test.yaml");
    return idle_keys(deck, read_run_config(deck));
  };
  const auto notes = idle("  name: sgd\n  beta1: 0.8\n  lamb: {max_ratio: 10}\n  sgd: {momentum: 0.5}\n");
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0], "test.yaml:3: optimizer.beta1 = 0.8 is not read: no weight is updated by adamw or lamb");
  EXPECT_EQ(notes[1], "test.yaml:4: optimizer.lamb.max_ratio = 10 is not read: no weight is updated by lamb");
  EXPECT_TRUE(idle("  beta1: 0.8\n  groups: ['*.q_proj.*']\n  group_rules: [lion]\n  lion: {beta2: 0.9}\n").empty());
}

// Settings of a layer type that the pattern does not have are reported, except their defaults.
TEST(run_config, keys_of_absent_layers_are_reported) {
  const auto idle = [](const std::string& pattern, const std::string& keys) {
    Deck deck = Deck::parse(fmt::format("model:\n  pattern: '{}'\n  {}\n", pattern, keys), "test.yaml");
    return idle_keys(deck, read_run_config(deck));
  };
  const std::string all =
      "attention: {rope_theta: 5000}\n  mlp: {intermediate_size: 40}\n  moe: {top_k: 1}\n  window: {size: 7}\n  mamba: {state_size: 6}";
  const auto sections = [&](const std::string& pattern) {
    std::vector<std::string> names;
    for (const std::string& note : idle(pattern, all)) {
      const auto begin = note.find("model.") + 6;
      names.push_back(note.substr(begin, note.find('.', begin) - begin));
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(sections("*-"), (Names{"mamba", "moe", "window"}));
  EXPECT_EQ(sections("P"), (Names{"moe", "window"}));
  EXPECT_EQ(sections("M-"), (Names{"attention", "moe", "window"}));
  EXPECT_EQ(sections("*E"), (Names{"mamba", "mlp", "window"}));
  EXPECT_EQ(idle("*-", "moe: {top_k: 1}"), Names{"test.yaml:3: model.moe.top_k = 1 is not read: model.pattern has no layer E"});
  EXPECT_EQ(idle("*-", "mamba: {state_size: 6, chunk_size: 32}"),
            Names{"test.yaml:3: model.mamba.state_size = 6 and 1 more of model.mamba are not read: model.pattern has no layer M or P"});
  Deck deck = Deck::describe();
  read_run_config(deck);
  for (const Declaration& d : deck.settings())
    if (d.path == "model.moe.top_k") {
      EXPECT_TRUE(idle("*-", fmt::format("moe: {{top_k: {}}}", d.fallback)).empty()) << "the effective deck of a run has every key";
    }
}

// The layout of a large run is often tried on few ranks with its own options.
TEST(run_config, remedy_for_other_rank_counts_is_valid) {
  const std::string wide = "parallel: {data: 8, tensor: 2}\ntrain: {global_batch_size: 16}\n";
  expect_refused([&] { layout_of(run_of(wide), 4); }, {"is 16 ranks, but there are 4; leave out parallel.data, which is then 2"});
  EXPECT_EQ(layout_of(run_of(wide, {"~parallel.data"}), 4).size(Axis::data), 2);
  expect_refused([&] { layout_of(run_of(wide), 3); }, {"leave out parallel.data and start a multiple of 2 ranks"});
}

TEST(run_config, wrong_update_rules_are_refused) {
  expect_refused([] { run_of("optimizer: {name: lamp}"); }, {"optimizer.name", "lamb"});
  expect_refused([] { run_of("optimizer: {groups: ['*.A_log'], group_rules: [adam]}"); }, {"optimizer.group_rules", "adamw"});
  expect_refused([] { run_of("optimizer: {groups: ['*.A_log'], group_rules: [sgd, lion]}"); }, {"optimizer.group_rules has 2 rules for 1 group"});
  expect_refused([] { run_of("optimizer: {groups: [a, b], group_rules: [sgd]}"); }, {"optimizer.group_rules has 1 rule for 2 groups"});
  expect_refused([] { run_of("optimizer: {name: lamb, lamb: {min_ratio: 2, max_ratio: 1}}"); }, {"optimizer.lamb.max_ratio", "min_ratio"});
  expect_refused([] { run_of("optimizer: {sgd: {momentum: 1}}"); }, {"optimizer.sgd.momentum"});
  expect_refused([] { run_of("optimizer: {schedule: power, power_a: 1, power_b: -0.5}"); }, {"optimizer.schedule_unit to tokens"});
  expect_refused([] { run_of("optimizer: {schedule: power, schedule_unit: tokens, power_a: 1}"); }, {"optimizer.power_b below 0, found 1 and 0"});
}

// A key that only another objective reads is refused, or reported if the deck sets train.objective explicitly. A
// default value is accepted, because the effective deck of a run contains every key.
TEST(run_config, keys_of_other_objectives_are_reported_or_refused) {
  std::string effective;
  const auto idle = [&](const std::string& text) {
    Deck deck = Deck::parse(text, "test.yaml");
    const RunConfig run = read_run_config(deck);
    effective = deck.effective();
    return idle_keys(deck, run);
  };
  for (const auto& [section, keys] : {std::pair{"mlm", "mask_token: 4"},
                                      {"classify", "num_labels: 3"},
                                      {"tag", "labels: [a, b]"},
                                      {"mtp", "depths: 2"},
                                      {"preference", "beta: 0.5"},
                                      {"seq2seq", "source_length: 9"},
                                      {"span_corruption", "share: 0.3"}}) {
    const std::string path = fmt::format("train.{}.", section), way_out = fmt::format("set that to {}", section);
    expect_refused([&] { idle(fmt::format("train:\n  {}: {{{}}}\n", section, keys)); },
                   {path.c_str(), "test.yaml:2", "train.objective is next_token", way_out.c_str()});
    const auto notes = idle(fmt::format("train:\n  objective: next_token\n  {}: {{{}}}\n", section, keys));
    ASSERT_EQ(notes.size(), 1u) << section;
    EXPECT_TRUE(notes[0].starts_with("test.yaml:3: " + path) && notes[0].ends_with("train.objective is next_token")) << notes[0];
  }
  for (const char* term : {"label_smoothing", "z_loss", "entropy_bonus"}) {
    const auto notes = idle(fmt::format("train:\n  objective: preference\n  {}: 0.1\n", term));
    ASSERT_EQ(notes.size(), 1u) << term;
    EXPECT_TRUE(notes[0].starts_with(fmt::format("test.yaml:3: train.{}", term)) &&
                notes[0].ends_with("is preference, which compares texts in pairs"))
        << notes[0];
    for (const char* reads : {"next_token", "mlm", "mtp"})
      EXPECT_TRUE(idle(fmt::format("train: {{objective: {}, {}: 0.1}}", reads, term)).empty()) << reads;
  }
  for (const char* read :
       {"train: {objective: mlm, mlm: {mask_token: 4, share: 0.3}}", "train: {mlm: {mask_token: -1}}", "train: {objective: mtp, mtp: {depths: 2}}"}) {
    EXPECT_TRUE(idle(read).empty()) << read;
    EXPECT_TRUE(idle(std::string(effective)).empty()) << read;
  }
}

TEST(run_config, bidirectional_attention_refuses_padding) {
  const std::string deck = "model: {pattern: '*-', attention: {causal: false}}\ntrain: {objective: mlm}\ndata: {order: documents}\n";
  expect_refused([&] { check_padding(run_of(deck)); }, {"data.order = documents", "padding", "data.documents: separate"});
  for (const char* other : {"data.documents=separate", "data.order=shuffled", "model.attention.causal=true"}) check_padding(run_of(deck, {other}));
}

TEST(run_config, malformed_batch_ramps_are_refused) {
  for (const char* ramp : {"\"16\"", "\"0:\"", "\"0:0\"", "\"0:-4\"", "\"a:4\"", "\"0:4x\"", "\"-1:4\"", "\"0:4\", \"0:8\"", "\"10:4\", \"5:8\""})
    expect_refused([&] { run_of(fmt::format("train: {{ramp: [{}]}}", ramp)); }, {"train.ramp"});
}

TEST(run_config, paired_lists_must_have_equal_length) {
  expect_refused([] { run_of("data: {prefixes: [a, b], weights: [1]}"); }, {"data.weights has 1 values for 2 prefixes"});
  expect_refused([] { run_of("optimizer: {groups: [x], group_lrs: [1, 2]}"); }, {"optimizer.group_lrs has 2 numbers for 1 group"});
  EXPECT_EQ(run_of("data: {prefixes: [a, b], weights: [1, 3]}").data.weights, (std::vector<double>{1, 3}));
}

// Data settings that training would refuse for any data are also refused when a run is only planned.
TEST(run_config, invalid_data_splits_and_weights_are_refused_early) {
  for (const char* split : {"x", "", "1,", "0,50,50", "1,2,3,4", "-1,2", "nan", "0"})
    expect_refused([&] { run_of(fmt::format("data: {{split: \"{}\"}}", split)); }, {"data.split", "949,50,1"});
  for (const char* split : {"949,50,1", "100", "1,0,0", "0.5,0.5"})
    EXPECT_EQ(run_of(fmt::format("data: {{split: \"{}\"}}", split)).data.split, split);
  expect_refused([] { run_of("data: {split: \"1,0,1\"}\ntrain: {eval_every: 5}"); }, {"train.eval_every", "data.split = 1,0,1"});
  for (const char* weights : {"[1, 0]", "[1, .inf]", "[1, .nan]", "[1, -1]"})
    expect_refused([&] { run_of(fmt::format("data: {{prefixes: [a, b], weights: {}}}", weights)); }, {"data.weights"});
  expect_refused([] { run_of("data: {prefixes: [a, \"\"]}"); }, {"data.prefixes"});
  expect_refused([] { run_of("data: {prefixes: [a, b], order: megatron}"); }, {"data.weights", "megatron"});
  expect_refused([] { run_of("data: {order: megatron}\ntrain: {non_finite: rollback}"); }, {"rollback", "data.order"});
}

TEST(run_config, walltime_of_zero_means_no_limit) {
  EXPECT_EQ(run_of("train: {walltime: \"0\"}").train.walltime, 0);
  Deck deck = Deck::describe();
  read_run_config(deck);
  const auto settings = deck.settings();
  const auto walltime = std::find_if(settings.begin(), settings.end(), [](const Declaration& d) { return d.path == "train.walltime"; });
  EXPECT_NE(walltime->help.find("empty or 0: none"), std::string::npos) << walltime->help;
}

TEST(run_config, excessive_init_std_is_refused_by_name) {
  expect_refused([] { run_of("model: {init_std: 1.0e+308}"); }, {"model.init_std", "1000"});
}

TEST(run_config, error_for_unshardable_heads_names_the_key) {
  expect_refused([] { layout_of(run_of("model: {mamba: {num_heads: 9}}\nparallel: {tensor: 2}"), 2); },
                 {"model.mamba.num_heads = 9", "parallel.tensor"});
  expect_refused([] { layout_of(run_of("model: {attention: {num_heads: 6, num_kv_heads: 3}}\nparallel: {tensor: 2}"), 2); },
                 {"model.attention.num_kv_heads = 3", "parallel.tensor"});
  expect_refused([] { layout_of(run_of("model: {mlp: {intermediate_size: 33}}\nparallel: {tensor: 2}"), 2); },
                 {"model.mlp.intermediate_size = 33", "parallel.tensor"});
}

TEST(run_config, patterns_select_parameter_groups_and_frozen_weights) {
  const RunConfig run = run_of("optimizer: {groups: [\"*.A_log\"], group_lrs: [0.5], frozen: [\"model.layers.*.mamba.*\", \"lm_head*\"]}");
  EXPECT_EQ(run.optimizer.frozen.size(), 2u);
  const auto trained = [&](const std::string& name) { return run.optimizer.trained()({name, {1}, replicated(), ones()}); };
  EXPECT_FALSE(trained("model.layers.3.mamba.D"));
  EXPECT_FALSE(trained("lm_head.weight"));
  EXPECT_TRUE(trained("model.layers.3.self_attn.q_proj.weight"));
  expect_refused([] { run_of("optimizer: {frozen: [mamba]}"); },
                 {"optimizer.frozen: 'mamba' matches no weight", "the nearest is model.layers.0.mamba"});
  expect_refused([] { run_of("optimizer: {groups: [\"*.a_log\"]}"); }, {"optimizer.groups: '*.a_log'", "model.layers.0.mamba.A_log"});
  expect_refused([] { run_of("optimizer: {frozen: [\"*\"]}"); }, {"leaves no weight to train"});
  expect_refused([] { run_of("optimizer: {groups: [\"*.D\"], group_lrs: [0]}"); }, {"group_lrs"});
}

TEST(run_config, every_ramp_batch_must_divide_over_data_ranks) {
  const RunConfig run = run_of(ramped);
  EXPECT_EQ(layout_of(run, 16).size(Axis::data), 16);
  expect_refused([&] { layout_of(run, 32); }, {"16 sequences", "32 data ranks"});
}

TEST(run_config, data_axis_takes_the_remaining_ranks) {
  const RunConfig run = run_of(ramped, {"parallel.pipeline=2", "parallel.tensor=2"});
  const Layout layout = layout_of(run, 16);
  EXPECT_EQ(layout.size(Axis::data), 4);
  EXPECT_EQ(layout.ranks(), 16);
  ASSERT_EQ(layout.stages.size(), 2u);
  EXPECT_EQ(layout.stages[1].last, 8);
  expect_refused([&] { layout_of(run, 6); }, {"there are 6"});
}

// True if the deck is valid on this grid (data, pipeline, context, tensor).
bool works(RunConfig run, const std::array<int, 4>& grid, int ranks) {
  const auto [data, pipeline, context, tensor] = grid;
  run.parallel.data = data, run.parallel.pipeline = pipeline, run.parallel.context = context, run.parallel.tensor = tensor;
  try {
    layout_of(run, ranks);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(run_config, error_without_valid_grid_names_nearby_rank_counts) {
  const RunConfig run = run_of("train: {global_batch_size: 24, seq_length: 64, micro_batch_size: 1}\nmodel: {pattern: P x 6}\n",
                               {"parallel.pipeline=2", "parallel.tensor=2"});
  const auto has_grid = [&](int ranks) {
    for (int t = 1; t <= ranks; ++t)
      for (int p = 1; t * p <= ranks; ++p)
        if (ranks % (t * p) == 0 && works(run, {ranks / (t * p), p, 1, t}, ranks)) return true;
    return false;
  };
  for (const int ranks : {29, 31, 37, 41, 43}) {
    ASSERT_FALSE(has_grid(ranks)) << ranks;
    const std::string text = testing::error_of([&] { layout_of(run, ranks); }).what();
    std::set<int> counts;
    for (const std::regex count("([0-9]+) \\(([0-9]+) x ([0-9]+) x ([0-9]+) x ([0-9]+)\\)");
         const std::smatch& m : std::vector<std::smatch>(std::sregex_iterator(text.begin(), text.end(), count), std::sregex_iterator())) {
      const std::array<int, 4> g{std::stoi(m[2]), std::stoi(m[3]), std::stoi(m[4]), std::stoi(m[5])};
      counts.insert(std::stoi(m[1]));
      EXPECT_EQ(g[0] * g[1] * g[2] * g[3], std::stoi(m[1])) << text;
      EXPECT_TRUE(works(run, g, std::stoi(m[1]))) << text << ": " << m.str();
    }
    int below = ranks - 1, above = ranks + 1;
    while (!has_grid(below)) --below;
    while (!has_grid(above)) ++above;
    EXPECT_TRUE(counts.contains(below) && counts.contains(above)) << below << " " << above << ": " << text;
  }
}

TEST(run_config, error_for_invalid_grid_lists_nearest_valid_grids) {
  std::mt19937 random(1);
  const auto pick = [&](std::initializer_list<int> from) { return from.begin()[random() % from.size()]; };
  int named = 0;
  for (int i = 0; i < 60; ++i) {
    const int ranks = pick({4, 6, 8, 12, 24}), pipeline = pick({1, 2, 3, 5}), context = pick({1, 2, 5}), tensor = pick({1, 2, 4, 7});
    const RunConfig run = run_of("train: {global_batch_size: 24, seq_length: 64, micro_batch_size: 1}\nmodel: {pattern: P x 6}\n",
                                 {fmt::format("parallel.pipeline={}", pipeline), fmt::format("parallel.context={}", context),
                                  fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.sequence={}", tensor > 1)});
    std::string text;
    try {
      layout_of(run, ranks);
      continue;
    } catch (const Error& e) {
      text = e.what();
    }
    const auto distance = [&](const std::array<int, 4>& g) {
      return std::abs(std::log(double(g[1]) / pipeline)) + std::abs(std::log(double(g[2]) / context)) + std::abs(std::log(double(g[3]) / tensor));
    };
    std::vector<double> notes;
    for (const std::regex grid("([0-9]+) x ([0-9]+) x ([0-9]+) x ([0-9]+)(?= *(,|$))");
         const std::smatch& m : std::vector<std::smatch>(std::sregex_iterator(text.begin(), text.end(), grid), std::sregex_iterator())) {
      const std::array<int, 4> g{std::stoi(m[1]), std::stoi(m[2]), std::stoi(m[3]), std::stoi(m[4])};
      EXPECT_EQ(g[0] * g[1] * g[2] * g[3], ranks) << text;
      EXPECT_TRUE(works(run, g, ranks)) << text << ": " << m.str();
      notes.push_back(distance(g));
    }
    // Nearest first. Grids with context parallelism follow if the deck has none and fewer than three others work.
    std::vector<double> all, others;
    for (int t = 1; t <= ranks; ++t)
      for (int p = 1; p <= ranks; ++p)
        for (int c = 1; c <= ranks; ++c)
          if (ranks % (t * p * c) == 0 && works(run, {ranks / (t * p * c), p, c, t}, ranks))
            (c == 1 || context > 1 ? all : others).push_back(distance({0, p, c, t}));
    std::sort(all.begin(), all.end()), std::sort(others.begin(), others.end());
    if (all.size() < 3) all.insert(all.end(), others.begin(), others.end());
    all.resize(std::min<std::size_t>(all.size(), 6));
    ASSERT_EQ(notes.size(), all.size()) << text;
    for (std::size_t n = 0; n < all.size(); ++n) EXPECT_NEAR(notes[n], all[n], 1e-9) << text;
    named += !notes.empty();
  }
  EXPECT_GT(named, 20);
}

// A batch with fewer sequences than ranks leaves long sequences to context parallelism.
TEST(run_config, batch_with_few_divisors_names_another) {
  const auto text = [](Index batch, int ranks) {
    return divisible_batch_text(run_of(fmt::format("train: {{global_batch_size: {}, micro_batch_size: 1}}\n", batch), {}), ranks);
  };
  EXPECT_EQ(text(1000, 512),
            "train.global_batch_size = 1000 and 512 ranks have the common divisor 8: the data-parallel ranks of a grid of 512 are at most 8. With "
            "train.global_batch_size = 1024 they may be 512. Numbers of ranks that suit the deck, with their grids: 500 (500 x 1 x 1 x 1)");
  EXPECT_EQ(text(1024, 512), "");
  EXPECT_EQ(text(96, 512), "") << "32 ranks share it, and no similar batch has four times as many";
  EXPECT_EQ(text(1000, 1), "");
  EXPECT_EQ(text(1, 7), "");
}

TEST(run_config, long_sequences_get_context_parallel_grids) {
  const auto message = [](const std::string& length) {
    const RunConfig run = run_of("train: {global_batch_size: 8, micro_batch_size: 1}\nmodel: {pattern: P x 8}\n",
                                 {"train.seq_length=" + length, "parallel.pipeline=2", "parallel.tensor=2"});
    try {
      layout_of(run, 64);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message("131072").find(" 8 x 2 x 2 x 2"), std::string::npos) << message("131072");
  EXPECT_NE(message("131072").find("train.global_batch_size = 8 allows at most 8 data-parallel ranks, so that 64 ranks need context"),
            std::string::npos);
  EXPECT_EQ(message("8192").find(" 8 x 2 x 2 x 2"), std::string::npos) << message("8192");
}

TEST(run_config, grid_axes_follow_the_configured_order) {
  const std::vector<std::string> grid{"parallel.pipeline=2", "parallel.tensor=4"};
  const auto with = [&](const std::string& order) {
    auto overrides = grid;
    if (!order.empty()) overrides.push_back("parallel.order=" + order);
    return layout_of(run_of(ramped, overrides), 16).text();
  };
  EXPECT_EQ(with(""), "2 data x 2 pipeline x 4 tensor");
  EXPECT_EQ(with("[tensor, data, pipeline]"), "4 tensor x 2 data x 2 pipeline");
  expect_refused([&] { with("[tensor, data, pipelines]"); }, {"parallel.order", "data, pipeline, context, tensor", "[tensor, data, pipelines]"});
}

TEST(run_config, context_parallel_requires_long_enough_sequences) {
  const auto with = [](std::vector<std::string> overrides) {
    overrides.push_back("parallel.context=4");
    return layout_of(run_of("model: {pattern: P}\ntrain: {global_batch_size: 1}\n", overrides), 4);
  };
  EXPECT_EQ(with({"train.seq_length=64"}).text(), "1 data x 1 pipeline x 4 context x 1 tensor (ring attention)");
  EXPECT_EQ(with({"train.seq_length=64"}).sequences(1, 1, 64).place(0), 8);
  EXPECT_EQ(with({"train.seq_length=64", "parallel.context_mode=heads"}).sequences(1, 1, 64).place(0), 16);
  EXPECT_EQ(with({"train.seq_length=64", "parallel.context_mode=balanced"}).text(),
            "1 data x 1 pipeline x 4 context x 1 tensor (load-balanced attention)");
  EXPECT_EQ(with({"train.seq_length=64", "parallel.context_mode=balanced"}).sequences(1, 1, 64).place(0), 16);
  expect_refused([&] { with({"parallel.context_mode=helped"}); }, {"parallel.context_mode", "ring | heads | balanced", "helped"});
  EXPECT_EQ(with({"train.seq_length=17", "model.pattern=\"*\""}).size(Axis::context), 4) << "attention accepts any sequence length";
  expect_refused([&] { with({"train.seq_length=16"}); }, {"parallel.context = 4", "blocks of 2", "model.mamba.conv_kernel = 4", "2 ranks or fewer"});
  expect_refused(
      [&] {
        with({"train.seq_length=16", "model.pattern=G", "model.delta.conv_kernel=5"});
      },
      {"parallel.context = 4", "blocks of 2", "model.delta.conv_kernel = 5", "2 ranks or fewer"});
}

TEST(run_config, context_parallel_retrieval_requires_full_chunks) {
  const auto with = [](std::vector<std::string> overrides) {
    overrides.push_back("parallel.context=4");
    return layout_of(run_of("model: {pattern: \"*R-\", retrieval: {chunk: 8}}\ntrain: {global_batch_size: 1}\n", overrides), 4);
  };
  EXPECT_EQ(with({"train.seq_length=64"}).size(Axis::context), 4);
  EXPECT_EQ(with({"train.seq_length=32", "parallel.context_mode=balanced"}).size(Axis::context), 4);
  expect_refused([&] { with({"train.seq_length=32"}); },
                 {"parallel.context = 4", "32 tokens", "8 blocks", "model.retrieval.chunk = 8", "multiple of 64", "fewer ranks"});
  expect_refused([&] { with({"train.seq_length=48", "parallel.context_mode=balanced"}); }, {"48 tokens", "4 blocks", "multiple of 32"});
}

// Twelve blocks have an R in blocks 6, 9 and 12, and 24 blocks in 9, 12 to 24 (Borgeaud et al. 2022, Megatron-LM).
TEST(run_config, retrieval_layers_take_published_places) {
  const auto placed = [](const std::string& pattern) {
    return run_of("model: {pattern: \"" + pattern + "\"}\nretro: {layers: auto}\ntrain: {seq_length: 64}\n").model.pattern;
  };
  EXPECT_EQ(placed("*-*-*-*-*-*-*-*-*-*-*-*-"), "*-*-*-*-*-*R-*-*-*R-*-*-*R-");
  EXPECT_EQ(placed("P x 12"), "PPPPPPRPPPRPPPR");
  EXPECT_EQ(placed("P x 16"), "PPPPPPPPPRPPPRPPPRP");
  EXPECT_EQ(placed("M-*-MM-*-M"), "M-*-MM-*-MR");
  EXPECT_EQ(placed("PPPPPPRPPPRPPPR"), "PPPPPPRPPPRPPPR") << "R in these places already";
  expect_refused([&] { placed("P x 5"); }, {"retro.layers = auto", "block 6", "5 layers that mix tokens", "pattern"});
  expect_refused([&] { placed("RPPPPPP"); }, {"retro.layers = auto", "PPPPPPR", "elsewhere"});
}

TEST(run_config, gates_without_what_they_gate_are_refused) {
  const auto model = [](const std::string& settings) { run_of("model: {pattern: GE, " + settings + "}\n", {}); };
  model("attention: {output_gate: true}, moe: {shared_gate: true, shared_intermediate_size: 8}");
  expect_refused([&] { model("attention: {output_gate: true, bias: true}"); }, {"model.attention.output_gate", "gate_proj has no bias"});
  expect_refused([&] { model("moe: {shared_gate: true}"); }, {"model.moe.shared_gate", "moe.shared_intermediate_size"});
  expect_refused([&] { model("delta: {num_heads: 6, num_key_heads: 4}"); }, {"delta.num_key_heads", "delta.num_heads"});
}

TEST(run_config, configured_layers_per_stage_are_used) {
  const RunConfig run = run_of(ramped, {"parallel.pipeline=2", "parallel.layers=[3, 5]"});
  const Layout layout = layout_of(run, 2);
  EXPECT_EQ(layout.stages[0].size(), 3);
  EXPECT_EQ(layout.stages[1].size(), 5);
  expect_refused([] { layout_of(run_of(ramped, {"parallel.pipeline=2", "parallel.layers=[3, 4]"}), 2); }, {"7 layers", "8"});
  expect_refused([] { layout_of(run_of(ramped, {"parallel.pipeline=2", "parallel.layers=[8]"}), 2); }, {"1 stages", "2"});
}

TEST(run_config, activation_policy_sets_recomputation_and_checks_its_keys) {
  const auto with = [](const std::vector<std::string>& keys) { return run_of(ramped, {keys.begin(), keys.end()}); };
  const auto recompute = [&](const char* policy) { return with({std::string("activation.policy=") + policy}).recompute.all; };
  EXPECT_EQ(recompute("keep"), recompute_of("none"));
  EXPECT_EQ(recompute("recompute"), recompute_of("full"));
  EXPECT_EQ(recompute("swap"), recompute_of("none"));
  EXPECT_EQ(recompute("memo"), recompute_of("selective"));
  EXPECT_FALSE(with({"activation.policy=recompute"}).offload.on);
  const RunConfig memo = with({"activation.policy=memo", "activation.alpha=0.25", "activation.swap_folder=/tmp", "activation.recompute=none"});
  EXPECT_EQ(engine_config(memo, layout_of(memo, 1)).offload, (OffloadConfig{true, 0.25, "/tmp"}));
  EXPECT_EQ(memo.recompute.all, recompute_of("none"));
  expect_refused([&] { with({"activation.policy=swap", "activation.alpha=0.5"}); }, {"activation.alpha", "0.5", "memo", "swap"});
  expect_refused([&] { with({"activation.swap_folder=/tmp"}); }, {"activation.swap_folder", "keep"});
  expect_refused([&] { with({"activation.policy=most"}); }, {"activation.policy", "memo"});
  expect_refused([&] { with({"activation.policy=memo", "activation.alpha=1.5"}); }, {"activation.alpha", "1.5"});
}

TEST(run_config, recompute_types_must_be_known_layer_types) {
  const RunConfig run = run_of(ramped, {"activation.recompute=selective", "activation.recompute_types=['P:full']"});
  EXPECT_EQ(engine_config(run, layout_of(run, 1)).recompute.of('P'), recompute_of("full"));
  EXPECT_EQ(run.recompute.of('M'), recompute_of("selective"));
  const auto types = [](const char* list) { return [list] { run_of(ramped, {std::string("activation.recompute_types=") + list}); }; };
  expect_refused(types("['Q:full']"), {"activation.recompute_types", "'Q'", "model.pattern"});
  expect_refused(types("['P:full', 'P:none']"), {"activation.recompute_types", "two entries", "'P'"});
  expect_refused(types("['P=full']"), {"activation.recompute_types", "SYMBOL:POLICY", "attention_output"});
  expect_refused([] { run_of(ramped, {"activation.recompute=most"}); }, {"activation.recompute", "selective"});
}

TEST(run_config, virtual_stages_require_the_1f1b_schedule) {
  const std::vector<std::string> pipeline{"parallel.pipeline=2", "parallel.data=1"};
  for (const NamedSchedule& named : schedules) {
    std::vector<std::string> keys = pipeline;
    keys.push_back(fmt::format("parallel.schedule={}", named.name));
    EXPECT_EQ(run_of(ramped, keys).parallel.schedule(), named.schedule);
    keys.push_back("parallel.virtual_stages=2");
    if (named.schedule == one_f_one_b) EXPECT_EQ(run_of(ramped, keys).parallel.schedule(), interleaved);
    else expect_refused([&] { layout_of(run_of(ramped, keys), 2); }, {"parallel.schedule", "parallel.virtual_stages", "1f1b"});
  }
  expect_refused([] { run_of(ramped, {"parallel.schedule=zero_buble"}); }, {"gpipe | zero_bubble", "did you mean"});
}

TEST(run_config, reduce_dtype_is_refused_for_fp64_training) {
  EXPECT_EQ(run_of(ramped, {"parallel.reduce_dtype=bf16"}).parallel.reduce_dtype, DType::bf16);
  EXPECT_FALSE(run_of(ramped).parallel.reduce_dtype);
  expect_refused(
      [] {
        layout_of(run_of(ramped, {"parallel.reduce_dtype=bf16", "train.precision=fp64"}), 1);
      },
      {"parallel.reduce_dtype", "fp64", "full"});
}

TEST(run_config, virtual_stages_split_the_layers_of_a_rank) {
  const RunConfig run = run_of(ramped, {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.layers=[1, 3, 2, 2]"});
  const Layout layout = layout_of(run, 2);
  EXPECT_EQ(layout.ranks(), 2);
  EXPECT_EQ(layout.stages, (std::vector<Span>{{0, 1}, {1, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(engine_config(run, layout).schedule, interleaved);
  EXPECT_EQ(layout_of(run_of(ramped, {"parallel.pipeline=2", "parallel.virtual_stages=3"}), 2).stages.size(), 6u);
  EXPECT_TRUE(layout_of(run_of(ramped, {"parallel.tensor=2", "parallel.sequence=true"}), 2).sequence);
  expect_refused([] { layout_of(run_of(ramped, {"parallel.sequence=true"}), 1); }, {"parallel.sequence", "parallel.tensor"});
  expect_refused([] { layout_of(run_of(ramped, {"parallel.virtual_stages=2"}), 1); }, {"parallel.virtual_stages = 2", "parallel.pipeline"});
  expect_refused([] { layout_of(run_of(ramped, {"parallel.pipeline=2", "parallel.virtual_stages=5"}), 2); }, {"10 pipeline stages", "8 or less"});
}

TEST(run_config, doubtful_settings_are_reported_with_a_remedy) {
  const auto warnings = [](const std::string& train, const std::string& optimizer, const std::string& prefixes = "[a]") {
    return doubtful_settings(
        run_of(fmt::format("train: {{{}}}\noptimizer: {{{}}}\nmodel: {{pattern: P}}\ndata: {{prefixes: {}}}\n", train, optimizer, prefixes)));
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(warnings("steps: 200", "warmup_steps: 100, min_lr: 1e-3"), Lines());
  EXPECT_EQ(warnings("steps: 20", "warmup_steps: 100"),
            Lines{"optimizer.warmup_steps = 100 is longer than the run (train.steps = 20): the learning rate never reaches optimizer.lr; "
                  "optimizer.warmup_steps=1 suits it"});
  EXPECT_EQ(warnings("steps: 199", "warmup_steps: 100"),
            Lines{"optimizer.warmup_steps = 100 is more than half of the run (train.steps = 199): optimizer.warmup_steps=9 suits it"});
  EXPECT_EQ(warnings("steps: 200", "lr: 1e-3, min_lr: 0.01"),
            Lines{"optimizer.min_lr = 0.01 is above optimizer.lr = 0.001: the learning rate rises; set optimizer.min_lr=0.0001"});
  EXPECT_EQ(warnings("steps: 200", "lr: 1e-3, min_lr: 0.01, schedule: constant"), Lines());
  EXPECT_EQ(warnings("steps: 200", "schedule: wsd, wsd_decay: 201"),
            Lines{"optimizer.wsd_decay = 201 is longer than the run (train.steps = 200): the decay has no stable phase before it; "
                  "optimizer.wsd_decay=40 suits it"});
  EXPECT_EQ(warnings("steps: 200", "wsd_decay: 201"), Lines());
  EXPECT_EQ(warnings("steps: 10, global_batch_size: 4, seq_length: 8", "schedule_unit: tokens, warmup_steps: 200"),
            Lines{"optimizer.warmup_steps = 200 is more than half of the run (320 tokens): optimizer.warmup_steps=32 suits it"});
  EXPECT_EQ(warnings("steps: 10, global_batch_size: 4, seq_length: 8", "schedule_unit: tokens, warmup_steps: 20"),
            Lines{"optimizer.warmup_steps = 20 counts tokens (optimizer.schedule_unit) and ends within the first step"});
  EXPECT_EQ(warnings("steps: 3, global_batch_size: 4, seq_length: 8", "schedule_unit: tokens, warmup_steps: 200"),
            Lines{"optimizer.warmup_steps = 200 is longer than the run (96 tokens): the learning rate never reaches optimizer.lr; "
                  "optimizer.warmup_steps=32 suits it"});
  EXPECT_EQ(warnings("steps: 1", "warmup_steps: 1"),
            Lines{"optimizer.warmup_steps = 1 is more than half of the run (train.steps = 1): optimizer.warmup_steps=0 suits it"});
  EXPECT_EQ(warnings("steps: 200", "", "[a, b, a]"), Lines{"data.prefixes names a twice, so its documents are read twice as often"});
  EXPECT_EQ(warnings("steps: 0", "warmup_steps: 100").size(), 1u);
}

TEST(run_config, warmup_advice_gives_no_further_warning) {
  for (int steps = 1; steps < 60; ++steps)
    for (const char* unit : {"steps", "samples", "tokens"}) {
      const auto warmup = [&](Index length) {
        return doubtful_settings(
            run_of(fmt::format("train: {{steps: {}, global_batch_size: 4, seq_length: 8}}\noptimizer: {{schedule_unit: {}, "
                               "warmup_steps: {}}}\nmodel: {{pattern: P}}\ndata: {{prefixes: [a]}}\n",
                               steps, unit, length)));
      };
      const auto advice = warmup(100000);
      ASSERT_EQ(advice.size(), 1u) << steps << " " << unit;
      const auto at = advice[0].rfind('=');
      EXPECT_TRUE(warmup(std::stoll(advice[0].substr(at + 1))).empty()) << advice[0];
    }
}

TEST(run_config, decay_that_ends_within_warmup_is_refused) {
  const auto check = [](const std::string& optimizer) {
    check_schedule(run_of("train: {steps: 100}\nmodel: {pattern: P}\noptimizer: {warmup_steps: 10, " + optimizer + "}\n"));
  };
  for (const char* schedule : {"linear", "cosine", "wsd"})
    expect_refused([&] { check(fmt::format("schedule: {}, decay_steps: 9", schedule)); },
                   {"optimizer.decay_steps = 9", "optimizer.warmup_steps = 10", "set optimizer.decay_steps=0"});
  check("schedule: constant, decay_steps: 9"), check("decay_steps: 10"), check("decay_steps: 0");
}

TEST(run_config, repeated_reads_of_validation_data_are_reported) {
  const RunConfig run = run_of("train: {eval_batches: 100, global_batch_size: 8}\nmodel: {pattern: P}\n");
  EXPECT_EQ(doubtful_evaluation(run, 800), "");
  EXPECT_EQ(doubtful_evaluation(run, 793), "");
  const RunConfig few = run_of("train: {eval_batches: 4, global_batch_size: 8}\nmodel: {pattern: P}\n");
  EXPECT_EQ(doubtful_evaluation(few, 1),
            "train.eval_batches = 4 reads the 1 sequence of the validation split 32.0 times; train.eval_batches=1 reads them 8.0 times");
  EXPECT_EQ(doubtful_evaluation(run, 134),
            "train.eval_batches = 100 reads the 134 sequences of the validation split 6.0 times; train.eval_batches=17 reads them once");
}

TEST(run_config, samples_of_run_equal_sum_over_steps) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    RunConfig run = run_of("train: {seq_length: 10}\nmodel: {pattern: P}");
    run.train.steps = Index(random() % 200), run.train.seq_length = 1 + Index(random() % 50), run.train.global_batch_size = 1 + Index(random() % 9);
    for (double tokens = trial % 2 ? 0 : 7; run.train.ramp.size() < random() % 5; tokens += double(1 + random() % 3000))
      run.train.ramp.push_back({tokens, 1 + Index(random() % 16)});
    Index samples = 0;
    for (Index step = 0; step < run.train.steps; ++step) samples += run.batch_after(double(samples * run.train.seq_length));
    EXPECT_EQ(samples_of(run), samples) << trial;
  }
  EXPECT_EQ(samples_of(run_of("train: {steps: 1099511627776, global_batch_size: 8}")), Index(8) << 40);
}

TEST(run_config, too_large_key_combinations_are_refused_by_name) {
  expect_refused([] { run_of("model:\n  attention:\n    num_heads: 4194304\n    num_kv_heads: 1", {"model.attention.head_dim=4"}); },
                 {"test.yaml:3: model.attention.num_heads = 4194304", "command line `model.attention.head_dim=4`", "together", "channels"});
  expect_refused([] { run_of("train:\n  micro_batch_size: 16777216\n  global_batch_size: 16777216"); },
                 {"test.yaml:2: train.micro_batch_size", "train.seq_length = 1024", "tokens"});
  expect_refused([] { run_of("model: {pattern: M- x 8192, hidden_size: 4194304}"); }, {"model.hidden_size", "weights"});
  expect_refused([] { run_of("parallel: {pipeline: 1024, tensor: 1024}"); }, {"parallel.pipeline", "parallel.tensor", "ranks of one model"});
}

TEST(run_config, layer_patterns_are_expanded_and_checked) {
  for (const char* pattern : {"Px2", "P2"})
    expect_refused([&] { run_of(fmt::format("model: {{pattern: {}}}", pattern)); }, {"repeated layers are written SYMBOLS x COUNT", "as in P x 2"});
  EXPECT_EQ(run_of("model: {pattern: P x 3}").model.pattern, "PPP");
  EXPECT_EQ(run_of("model: {pattern: M*- x 2}").model.pattern, "M*-M*-");
  EXPECT_EQ(run_of("model: {pattern: M*-P}").model.pattern, "M*-P");
  for (const char* pattern : {"P x 0", "P x -1", "P x 3x", "P x ", "Q"})
    expect_refused([&] { run_of(fmt::format("model: {{pattern: \"{}\"}}", pattern)); }, {"model.pattern"});
  expect_refused([] { run_of("model: {attention: {num_heads: 6, num_kv_heads: 4}}"); }, {"num_kv_heads"});
  expect_refused([] { run_of("model: {mamba: {num_heads: 6, num_groups: 4}}"); }, {"groups"});
}

}  // namespace
}  // namespace gyr::run_config_suite
