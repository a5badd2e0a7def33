// SPDX-License-Identifier: BSD-3-Clause
// What a search finds is what predicting every layout finds; nothing is bounded out that is not slower or too large, and what is found is what the
// deck's own rules accept and its plan says.
#include <algorithm>
#include <cmath>
#include <set>

#include "regression/folder.hpp"
#include "regression/planner/random_cluster.hpp"
#include "regression/seed.hpp"
#include "regression/testing.hpp"
#include "src/config/layout_rules.hpp"
#include "src/planner/layout_floor.hpp"
#include "src/planner/search.hpp"
#include "src/train/engine_config.hpp"

namespace gyr::testing {
namespace {

struct Drawn {
  std::string text;
  RunConfig run;
  int ranks;
  Cluster cluster;
};

// A small model of any layers on up to 12 ranks of a machine that has room for it, or for some of its layouts. `fewer`: with most of what a search
// decides kept, so that all layouts can be predicted.
Drawn draw(Dice& dice, bool fewer) {
  Drawn d;
  d.ranks = dice.one_of<int>({1, 2, 3, 4, 6, 8, 12});
  std::string keep;
  for (const char* key : searched_keys)
    if (const std::string name = key;
        fewer && name != "data" && name != "pipeline" && name != "context" && name != "tensor" && dice.between(0, 9) < 6)
      keep += (keep.empty() ? "" : ", ") + name;
  const std::string pattern = dice.one_of<std::string>({"PPPP", "PPPPPPPP", "M-*-M-*-M-", "\"*- x 3\"", "W-*-W-*-", "\"*E*-*E*-\"", "MPMP"});
  d.text = fmt::format(
      "model:\n  pattern: {}\n  vocab_size: {}\n  hidden_size: {}\n  attention: {{num_heads: {}, num_kv_heads: 2, head_dim: 4}}\n{}"
      "  mamba: {{num_heads: 4, head_dim: 4, num_groups: {}, state_size: 4, chunk_size: 4}}\n  mlp: {{intermediate_size: {}}}\n"
      "  moe: {{experts: 4, top_k: 2, intermediate_size: 8}}\n  tie_word_embeddings: {}\n"
      "train: {{global_batch_size: {}, micro_batch_size: 1, seq_length: {}, precision: {}}}\n"
      "parallel: {{keep: [{}], bucket: 1, reduce_dtype: {}{}, sequence: {}, schedule: {}, shard: {}, mixer: auto}}\nactivation: {{recompute: {}}}\n",
      pattern, dice.between(50, 700), 4 * dice.between(2, 40), dice.one_of<int>({4, 8}),
      pattern.find('W') != pattern.npos ? "  window: {size: 8}\n" : "", dice.between(1, 2), 8 * dice.between(1, 30), dice.coin(),
      fewer ? dice.one_of<int>({1, 2, 3, 4, 6}) : dice.one_of<int>({4, 12, 40, 72}), dice.one_of<int>({16, 32, 60}),
      dice.one_of<std::string>({"fp32", "bf16"}), keep, dice.one_of<std::string>({"full", "bf16"}),
      dice.between(0, 4) == 0 ? ", order: [pipeline, data, tensor]" : "", dice.between(0, 3) == 0,
      dice.one_of<std::string>({"1f1b", "gpipe", "zero_bubble"}), dice.one_of<std::string>({"none", "optimizer", "gradients", "weights"}),
      dice.one_of<std::string>({"none", "selective", "full"}));
  Deck deck = Deck::parse(d.text, "drawn");
  d.run = read_run_config(deck);
  deck.finish();
  d.cluster = random_cluster(dice);
  d.cluster.nodes = 0, d.cluster.fit.step = 0;  // so that what differs is most of a step
  for (Link* link : {&d.cluster.node, &d.cluster.network, &d.cluster.islands}) link->latency *= std::pow(10, -dice.between(0, 5));
  d.cluster.device.memory = 1e12;
  return d;
}

std::vector<LayoutChoice> all_of(const Drawn& d) {
  std::vector<LayoutChoice> all;
  for (const LayoutChoice& shape : space_of(d.run, d.ranks).shapes)
    for (const LayoutChoice& c : variants_of(d.run, shape)) all.push_back(c);
  return all;
}

TEST(search, bounds_are_below_what_is_predicted_and_planned) {
  Dice dice(seed_of_run());
  int seen = 0;
  for (int i = 0; i < 60; ++i) {
    const Drawn d = draw(dice, false);
    const std::vector<LayoutChoice> all = all_of(d);
    LayoutFloor floor(d.run, d.ranks, d.cluster, nullptr);
    StageRuns runs;
    for (int j = 0; j < 8 && !all.empty(); ++j) {
      const LayoutChoice c = dice.one_of(all);
      const RunConfig run = with(d.run, c);
      const Layout layout = layout_by_rules(run, d.ranks);
      const EngineConfig config = engine_config(run, layout);
      const StagePlans plans(config, layout, runs);
      const double seconds = predict(plans, config, layout, d.cluster).seconds;
      const double bytes = double(plans.fullest(config).bytes);
      LayoutChoice shape = c;
      shape.schedule = schedules_of(d.run, c, micros_of(d.run, c)).front();
      shape.recompute = recomputations_of(d.run).front(), shape.shard = shards_of(d.run, c).front();
      const auto below = [&](const LayoutFloor::Floor& f, const char* which) {
        EXPECT_LE(f.seconds, seconds) << f.seconds / seconds - 1 << "\n"
                                      << which << " of " << c.text() << " " << name_of(c.shard) << " " << recompute_names[c.recompute] << " b"
                                      << c.micro_batch_size << " on " << d.ranks << " ranks\n"
                                      << d.text;
        EXPECT_LE(f.bytes, bytes) << f.bytes / bytes - 1 << "\n"
                                  << which << " of " << c.text() << " " << name_of(c.shard) << " " << recompute_names[c.recompute] << " b"
                                  << c.micro_batch_size << " on " << d.ranks << " ranks\n"
                                  << d.text;
      };
      below(floor.of_shape(shape), "shape");
      below(floor.of_shared(shape), "shared");
      below(floor.of(c), "parts");
      below(floor.of_programs(c), "programs");
      ++seen;
    }
  }
  EXPECT_GT(seen, 100);
}

// The ten best of every layout, with the same predictions to the last bit, where memory binds and where it does not. What is counted of the others
// comes to the whole.
TEST(search, finds_what_predicting_every_layout_finds) {
  Dice dice(seed_of_run());
  int searched = 0, bound_by_memory = 0, bounded_out = 0;
  for (int i = 0; i < 200 && searched < 24; ++i) {
    Drawn d = draw(dice, true);
    const std::size_t layouts = all_of(d).size();
    if (layouts == 0 || layouts > 250) continue;
    const SearchResult every = search(d.run, d.ranks, d.cluster, nullptr, 1 << 30, Pruning::none);
    ASSERT_FALSE(every.best.empty());
    std::vector<Index> bytes;
    for (const FoundLayout& f : every.best) bytes.push_back(f.bytes);
    std::sort(bytes.begin(), bytes.end());
    for (const std::size_t place : {bytes.size() - 1, bytes.size() / 2, std::size_t(0)}) {
      d.cluster.device.memory = double(bytes[place]);
      const SearchResult found = search(d.run, d.ranks, d.cluster);
      std::vector<FoundLayout> best;
      for (const FoundLayout& f : every.best)
        if (double(f.bytes) <= d.cluster.device.memory && best.size() < 10) best.push_back(f);
      ASSERT_EQ(found.best.size(), best.size()) << d.text;
      for (std::size_t j = 0; j < best.size(); ++j) {
        EXPECT_EQ(found.best[j].choice, best[j].choice) << j << ": " << found.best[j].choice.text() << " instead of " << best[j].choice.text() << "\n"
                                                        << d.text;
        EXPECT_EQ(found.best[j].prediction.seconds, best[j].prediction.seconds);
        EXPECT_EQ(found.best[j].bytes, best[j].bytes);
      }
      EXPECT_EQ(found.layouts, every.layouts);
      EXPECT_DOUBLE_EQ(found.by_rules.layouts() + found.by_memory.layouts() + double(found.predicted) + found.slower, found.layouts);
      bound_by_memory += found.by_memory.layouts() > 0, bounded_out += found.slower > 0;
    }
    ++searched;
  }
  EXPECT_GT(searched, 20);
  EXPECT_GT(bound_by_memory, 10);
  EXPECT_GT(bounded_out, 10);
}

// Its deck's lines say the same layout, whose plan takes the bytes that were found.
TEST(search, what_is_found_is_what_the_deck_says_then) {
  Dice dice(seed_of_run());
  int seen = 0;
  for (int i = 0; i < 40 && seen < 12; ++i) {
    const Drawn d = draw(dice, dice.coin());
    const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, 3);
    for (const FoundLayout& f : found.best) {
      Deck deck = Deck::parse(d.text, "drawn", deck_lines(f.choice, d.run.parallel.keep));
      const RunConfig run = read_run_config(deck);
      deck.finish();
      const Layout layout = layout_of(run, d.ranks);
      EXPECT_EQ(choice_of(run, layout), f.choice) << f.choice.text();
      const EngineConfig config = engine_config(run, layout);
      Index fullest = 0;
      for (int position = 0; position < layout.ranks(); ++position) fullest = std::max(fullest, plan_rank(config, layout, position).capacity.total());
      EXPECT_EQ(f.bytes, fullest) << f.choice.text() << " " << name_of(f.choice.shard) << "\n" << d.text;
      EXPECT_EQ(predict(StagePlans(config, layout), config, layout, d.cluster).seconds, f.prediction.seconds);
    }
    ++seen;
  }
}

TEST(search, says_which_rule_refuses_how_many_layouts) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 10; ++i) {
    const Drawn d = draw(dice, false);
    const LayoutSpace space = space_of(d.run, d.ranks);
    double allowed = 0, refused = 0;
    std::set<LayoutChoice> different;
    for (const LayoutChoice& shape : space.shapes)
      for (const LayoutChoice& c : variants_of(d.run, shape)) {
        ++allowed, different.insert(c);
        layout_by_rules(with(d.run, c), d.ranks);
      }
    for (const Refusals::Line& line : space.refusals.lines()) refused += line.layouts;
    EXPECT_EQ(allowed + refused, space.layouts);
    EXPECT_EQ(double(different.size()), allowed);
  }
  Refusals refusals;
  refusals.add(refusals.reason("1f1b: 4 heads on 3 ranks"), 2), refusals.add(refusals.reason("1f1b: 4 heads on 12 ranks"), 5);
  refusals.add(refusals.reason("none"), 9);
  ASSERT_EQ(refusals.lines().size(), 2u);
  EXPECT_EQ(refusals.lines()[1].why, "1f1b: 4 heads on 3 to 12 ranks");
  EXPECT_EQ(refusals.lines()[1].layouts, 7);
}

TEST(search, more_ranks_than_the_cluster_has_are_refused) {
  Dice dice(1);
  Drawn d = draw(dice, true);
  d.cluster.nodes = 1, d.cluster.per_node = 1, d.ranks = 2;
  EXPECT_THROW(search(d.run, d.ranks, d.cluster), Error);
}

TEST(search, refuses_what_its_bounds_do_not_know) {
  Dice dice(seed_of_run());
  Drawn d = draw(dice, false);
  d.run.swap.on = true;
  const std::string why = error_of([&] { search(d.run, d.ranks, d.cluster); }).what();
  EXPECT_NE(why.find("activation.policy"), why.npos) << why;
}

}  // namespace
}  // namespace gyr::testing
