// SPDX-License-Identifier: BSD-3-Clause
// The layout search finds the same best layouts as predicting every layout. Its lower bounds exclude only layouts that
// are slower or too large. The deck lines of a found layout give that layout and its predicted memory.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <regex>
#include <set>
#include <thread>

#include "regression/planner/random_cluster.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/commands/search_report.hpp"
#include "src/config/layout_rules.hpp"
#include "src/planner/bounds/layout_bound.hpp"
#include "src/planner/layouts/offload_fraction.hpp"
#include "src/planner/machine/run_islands.hpp"
#include "src/planner/search/neighbour_layouts.hpp"
#include "src/planner/search/search.hpp"
#include "src/planner/search/search_time.hpp"
#include "src/train/engine_config.hpp"

namespace gyr::testing::search_suite {
namespace {

struct Drawn {
  std::string text;
  RunConfig run;
  int ranks;
  Cluster cluster;
};

// Draws a small random model, with or without an encoder, on up to 12 ranks of a random cluster with ample device
// memory. Some layers fill communication buckets of their own. `fewer` keeps most settings of the deck, so that all
// layouts can be predicted. `swaps` offloads activations to host memory.
Drawn draw(Dice& dice, bool fewer, bool offloads = false) {
  Drawn d;
  d.ranks = dice.one_of<int>({1, 2, 3, 4, 6, 8, 12});
  std::string keep;
  for (const char* key : searched_keys)
    if (const std::string name = key;
        fewer && name != "data" && name != "pipeline" && name != "context" && name != "tensor" && dice.between(0, 9) < 6)
      keep += (keep.empty() ? "" : ", ") + name;
  const std::string pattern =
      dice.one_of<std::string>({"PPPP", "PPPPPPPP", "M-*-M-*-M-", "\"*- x 3\"", "W-*-W-*-", "\"*E*-*E*-\"", "MPMP", "\"*-*->*X-*X-\"", "L-LEL-"});
  const std::string objective = pattern.find('>') != pattern.npos ? "span_corruption" : dice.between(0, 5) == 0 ? "mtp" : "next_token";
  const bool causal = objective != "next_token" || pattern.find_first_of("MPL") != pattern.npos || dice.between(0, 3) > 0;
  d.text = fmt::format(
      "model:\n  pattern: {}\n  vocab_size: {}\n  hidden_size: {}\n  attention: {{num_heads: {}, num_kv_heads: 2, head_dim: 4, causal: {}{}}}\n{}"
      "  mamba: {{num_heads: 4, head_dim: 4, num_groups: {}, state_size: 4, chunk_size: 4}}\n  mlp: {{intermediate_size: {}}}\n"
      "  latent: {{num_heads: 4, head_dim: 4, rope_dim: 2, v_head_dim: 4, q_rank: 6, kv_rank: 4}}\n"
      "  moe: {{experts: 4, top_k: 2, intermediate_size: 8}}\n  tie_word_embeddings: {}\n"
      "train: {{global_batch_size: {}, micro_batch_size: 1, seq_length: {}, precision: {}, objective: {}}}\n"
      "parallel: {{keep: [{}], bucket: 1, reduce_dtype: {}{}, sequence: {}, schedule: {}, shard: {}, mixer: auto}}\nactivation: {{recompute: "
      "{}{}}}\n",
      pattern, dice.between(50, 700), 4 * dice.between(2, 40), dice.one_of<int>({4, 8}), causal,
      objective == "span_corruption" && dice.coin() ? fmt::format(", relative_bias: {{buckets: {}}}", 2 * dice.between(2, 40)) : "",
      pattern.find('W') != pattern.npos ? "  window: {size: 8}\n" : "", dice.between(1, 2),
      8 * dice.one_of<int>({dice.between(1, 30), dice.between(200, 400)}), dice.coin(),
      fewer ? dice.one_of<int>({1, 2, 3, 4, 6}) : dice.one_of<int>({4, 12, 40, 72}),
      offloads ? dice.one_of<int>({16, 60, 128, 256, 320}) : dice.one_of<int>({16, 32, 60}), dice.one_of<std::string>({"fp32", "bf16"}), objective,
      keep, dice.one_of<std::string>({"full", "bf16"}), dice.between(0, 4) == 0 ? ", order: [pipeline, data, tensor]" : "", dice.between(0, 3) == 0,
      dice.one_of<std::string>({"1f1b", "gpipe", "zero_bubble"}), dice.one_of<std::string>({"none", "optimizer", "gradients", "weights"}),
      dice.one_of<std::string>({"none", "selective", "full"}),
      !offloads ? ""
                : dice.one_of<std::string>({", policy: swap", ", policy: memo", ", policy: memo, alpha: 0", ", policy: memo, alpha: 0.3",
                                            ", policy: memo, alpha: 0.75", ", policy: memo, alpha: auto"}));
  const bool few = fewer || !offloads;  // few layouts: with unequal layers and offloading, bounds are weak and most layouts must be predicted
  if (dice.between(0, 5) == 0 && pattern.front() != 'L')
    d.text += fmt::format("finetune: {{lora: {{rank: {}, targets: [{}], also: [{}]}}}}\n", dice.between(1, 4),
                          few && dice.coin() ? "\"model.layers.0.*\"" : "\"*_proj\"", dice.one_of<std::string>({"", "\"*norm*\"", "\"*\""}));
  else if (dice.between(0, 3) == 0)
    d.text += fmt::format("optimizer: {{frozen: [{}]}}\n",
                          few && dice.coin() ? dice.one_of<std::string>({"\"model.layers.0.*\"", "\"model.layers.1.*\", \"model.layers.2.*\""})
                                             : dice.one_of<std::string>({"\"*embed*\"", "\"*norm*\"", "\"*proj*\""}));
  Deck deck = Deck::parse(d.text, "drawn");
  d.run = read_run_config(deck);
  deck.finish();
  d.cluster = random_cluster(dice);
  d.cluster.nodes = 0, d.cluster.fit.step = 0;  // so that the differences between layouts dominate the step time
  for (Link* link : {&d.cluster.node, &d.cluster.network, &d.cluster.islands}) link->latency *= std::pow(10, -dice.between(0, 5));
  d.cluster.device.memory = 1e12;
  d.cluster.host = {dice.coin() ? 1e12 : 0, d.cluster.device.memory_bandwidth * std::pow(10, -dice.real(0, 3)), dice.between(0, 3) > 0};
  return d;
}

// Replaces the cluster of `d` by two or three islands of different devices.
Drawn parted(Dice& dice, Drawn d) {
  const int islands = std::min(d.ranks, dice.between(2, 3));
  for (int left = d.ranks, i = 0; i < islands; ++i) {
    const int remaining = islands - i - 1, ranks = remaining == 0 ? left : dice.between(1, left - remaining);
    const Cluster all = d.cluster;
    Cluster part = random_cluster(dice);
    const bool one_node = dice.coin();
    part.name = fmt::format("i{}", i), part.island_nodes = 0;
    part.nodes = one_node ? 1 : ranks, part.per_node = one_node ? ranks : 1;
    part.device.memory = all.device.memory, part.fit.step = 0;
    part.host = {all.host.memory, part.device.memory_bandwidth * std::pow(10, -dice.real(0, 3)), dice.coin()};
    for (Link* link : {&part.node, &part.network}) link->latency *= std::pow(10, -dice.between(0, 5));
    d.cluster.parts.push_back(part);
    left -= ranks;
  }
  d.cluster.island_nodes = 0;
  d.run = on_cluster(d.run, d.cluster, d.ranks);
  return d;
}

std::vector<LayoutChoice> all_of(const Drawn& d) {
  std::vector<LayoutChoice> all;
  for (const LayoutChoice& shape : space_of(d.run, d.ranks).shapes)
    for (const LayoutChoice& c : variants_of(d.run, shape)) all.push_back(c);
  return all;
}

// If the search chooses the offloaded fraction alpha, the bounds must hold for any alpha.
TEST(search, bounds_are_below_predicted_time_and_planned_memory) {
  Dice dice(seed_of_run());
  int seen = 0, offloading = 0;
  for (int i = 0; i < 120; ++i) {
    Drawn d = draw(dice, false, i % 2 == 1);
    if (i % 3 == 2) d = parted(dice, d);
    const std::vector<LayoutChoice> all = all_of(d);
    LayoutBound floor(d.run, d.cluster, nullptr);
    StageRuns runs;
    for (int j = 0; j < 8 && !all.empty(); ++j) {
      LayoutChoice c = dice.one_of(all);
      if (d.run.offload.find_alpha) c.alpha = dice.between(0, alpha_steps);
      const RunConfig run = with(d.run, c);
      const Layout layout = layout_by_rules(run, d.ranks);
      const EngineConfig config = engine_config(run, layout);
      const StagePlans plans(config, layout, runs);
      const double seconds = predict(plans, config, layout, d.cluster).seconds;
      const MemoryTaken taken = plans.taken(config, d.cluster);
      LayoutChoice shape = c;
      shape.schedule = schedules_of(d.run, c, micros_of(d.run, c)).front();
      shape.shard = shards_of(d.run, c).front();
      LayoutChoice first = shape;
      first.recompute = recomputations_of(d.run).front();
      if (!run.offload.on) shape = first;
      const auto below = [&](const LayoutBound::Floor& f, const char* which) {
        const std::string what = fmt::format("{} of {} {} {} b{} alpha {} on {} ranks\n{}", which, c.text(), name_of(c.shard),
                                             recompute_names[c.recompute], c.micro_batch_size, run.offload.alpha, d.ranks, d.text);
        EXPECT_LE(f.seconds, seconds) << f.seconds / seconds - 1 << "\n" << what;
        EXPECT_LE(f.taken.bytes, taken.bytes) << f.taken.bytes / taken.bytes - 1 << "\n" << what;
        EXPECT_LE(f.taken.host, taken.host) << f.taken.host / taken.host - 1 << "\n" << what;
      };
      below(floor.of_shape(first), "shape");
      if (run.offload.on) below(floor.of_offloading(shape), "swapping");
      below(floor.of_shared(shape), "shared");
      below(floor.of(c), "parts");
      below(floor.of_programs(c), "programs");
      ++seen, offloading += taken.host > 0;
    }
  }
  EXPECT_GT(seen, 100);
  EXPECT_GT(offloading, 50);
}

// The bound times the tensors that a run sends to its next stage: without the encoder stream and the bias table, it would
// be lower than necessary. Only padding may make a message of the run longer.
TEST(search, bounds_count_every_tensor_of_a_pipeline_message) {
  Dice dice(seed_of_run());
  int messages = 0, of_encoders = 0, exact = 0;
  for (int i = 0; i < 150; ++i) {
    const Drawn d = draw(dice, false);
    const std::vector<LayoutChoice> all = all_of(d);
    StageRuns runs;
    for (int j = 0; j < 3 && !all.empty(); ++j) {
      const LayoutChoice c = dice.one_of(all);
      if (c.pipeline == 1) continue;
      const RunConfig run = with(d.run, c);
      const Layout layout = layout_by_rules(run, d.ranks);
      const auto stage = runs.of(engine_config(run, layout), layout, first_of(layout, 0));
      const auto& tasks = stage->program.tasks;
      const auto send = std::find_if(tasks.begin(), tasks.end(), [](const Task& t) { return t.op == Op::send; });
      ASSERT_NE(send, tasks.end()) << d.text;
      const CountedTasks counted(*stage, d.cluster);
      const Traffic sent = counted.counts.at(TaskKey(*send, stage->program.shape.micros)).message,
                    bound = message_of(run, c, layout.stages.front().last);
      const TextLengths lengths = run.lengths();
      const auto even = [&](Index tokens) { return tokens % (2 * c.context) == 0 && c.micro_batch_size * tokens / c.context % c.tensor == 0; };
      const bool unpadded = even(lengths.text) && even(lengths.source);
      EXPECT_EQ(bound.calls, sent.calls) << c.text() << "\n" << d.text;
      EXPECT_LE(bound.bytes, sent.bytes) << c.text() << "\n" << d.text;
      if (unpadded) {
        EXPECT_EQ(bound.bytes, sent.bytes) << c.text() << "\n" << d.text;
      }
      ++messages, of_encoders += lengths.source > 0, exact += unpadded;
    }
  }
  EXPECT_GT(messages, 50);
  EXPECT_GT(of_encoders, 5);
  EXPECT_GT(exact, 20);
}

bool fits_memory(const Cluster& c, const FoundLayout& f) {
  return double(f.bytes) <= c.device.usable() && double(f.host) <= c.host_memory_left(double(f.bytes));
}

// Ten fastest layouts that fit into memory, out of all layouts.
std::vector<FoundLayout> best_of(const Drawn& d, const SearchResult& every) {
  // Here the memory limits determine which layouts are considered, so the exhaustive search must be repeated.
  if (!d.cluster.parts.empty() || (d.run.offload.on && d.cluster.host.memory == 0))
    return search(d.run, d.ranks, d.cluster, nullptr, {.pruning = Pruning::none}).best;
  std::vector<FoundLayout> best;
  for (const FoundLayout& f : every.best)
    if (fits_memory(d.cluster, f) && best.size() < 10) best.push_back(f);
  return best;
}

std::string search_result_text(const SearchResult& r) {
  std::string text = fmt::format("\n{} layouts, {} predicted, {} slower, {} by rules, {} by memory", r.layouts, r.predicted, r.slower,
                                 r.by_rules.layouts(), r.by_memory.layouts());
  for (const auto* refusals : {&r.by_rules, &r.by_memory})
    for (const auto& line : refusals->lines()) text += fmt::format("\n{}: {}", line.layouts, line.why);
  return text;
}

struct Searches {
  int searched = 0, bound_by_memory = 0, bounded_out = 0, waiting = 0;
};

// The search must return the ten best of all layouts with bitwise equal predictions, whether memory is the limit or
// not. The counts of found and excluded layouts must add up to all layouts.
void expect_the_same(Drawn d, Searches& so_far) {
  const std::size_t layouts = all_of(d).size();
  if (layouts == 0 || layouts > 250) return;
  const SearchResult every = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none});
  ASSERT_FALSE(every.best.empty()) << d.text;
  std::vector<Index> bytes;
  for (const FoundLayout& f : every.best) bytes.push_back(f.bytes), so_far.waiting += f.prediction.copies > 0;
  std::sort(bytes.begin(), bytes.end());
  for (const std::size_t place : {bytes.size() - 1, bytes.size() / 2, std::size_t(0)}) {
    d.cluster.device.memory = double(bytes[place]) + d.cluster.device.reserve;
    for (std::size_t i = 0; i < d.cluster.parts.size(); ++i)
      d.cluster.parts[i].device.memory = double(bytes[place]) * (1 - 0.1 * double(i)) + d.cluster.parts[i].device.reserve;
    const SearchResult found = search(d.run, d.ranks, d.cluster);
    const std::vector<FoundLayout> best = best_of(d, every);
    ASSERT_EQ(found.best.size(), best.size()) << d.text << search_result_text(found);
    for (std::size_t j = 0; j < best.size(); ++j) {
      EXPECT_EQ(found.best[j].choice, best[j].choice) << j << ": " << found.best[j].choice.text() << " instead of " << best[j].choice.text() << "\n"
                                                      << d.text;
      EXPECT_EQ(found.best[j].prediction.seconds, best[j].prediction.seconds);
      EXPECT_EQ(found.best[j].bytes, best[j].bytes);
    }
    EXPECT_EQ(found.layouts, every.layouts);
    EXPECT_DOUBLE_EQ(found.by_rules.layouts() + found.by_memory.layouts() + double(found.predicted) + found.slower, found.layouts);
    so_far.bound_by_memory += found.by_memory.layouts() > 0, so_far.bounded_out += found.slower > 0;
  }
  ++so_far.searched;
}

TEST(search, search_finds_the_best_of_all_layouts) {
  Dice dice(seed_of_run());
  Searches seen;
  for (int i = 0; i < 200 && seen.searched < 24; ++i) expect_the_same(draw(dice, true), seen);
  EXPECT_GT(seen.searched, 20);
  EXPECT_GT(seen.bound_by_memory, 10);
  EXPECT_GT(seen.bounded_out, 10);
}

TEST(search, search_finds_the_best_layouts_with_offloading) {
  Dice dice(seed_of_run());
  Searches seen;
  for (int i = 0; i < 200 && seen.searched < 16; ++i) expect_the_same(draw(dice, true, true), seen);
  EXPECT_GT(seen.searched, 12);
  EXPECT_GT(seen.bound_by_memory, 5);
  EXPECT_GT(seen.bounded_out, 5);
  EXPECT_GT(seen.waiting, 20);
}

TEST(search, search_finds_the_best_layouts_on_unequal_islands) {
  Dice dice(seed_of_run());
  Searches seen;
  for (int i = 0; i < 200 && seen.searched < 10; ++i) {  // each draw takes as long as several draws of the other tests
    const Drawn d = draw(dice, true, i % 4 == 3);
    if (d.ranks > 1) expect_the_same(parted(dice, d), seen);
  }
  EXPECT_GT(seen.searched, 8);
  EXPECT_GT(seen.bound_by_memory, 5);
  EXPECT_GT(seen.bounded_out, 5);
}

// The host memory is large enough for the offloaded activations of only some layouts.
TEST(search, search_finds_layouts_that_fit_host_memory) {
  Dice dice(seed_of_run());
  int refused = 0;
  for (int i = 0; i < 40 && refused < 6; ++i) {
    Drawn d = draw(dice, true, true);
    if (d.run.offload.find_alpha || all_of(d).empty() || all_of(d).size() > 250) continue;
    const SearchResult every = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none});
    std::vector<Index> host;
    for (const FoundLayout& f : every.best) host.push_back(f.host);
    std::sort(host.begin(), host.end());
    if (host.empty() || host.front() == host.back()) continue;
    d.cluster.host.memory = std::max(1.0, double(host[host.size() / 3]));
    const std::vector<FoundLayout> best = best_of(d, every), found = search(d.run, d.ranks, d.cluster).best;
    ASSERT_EQ(found.size(), best.size()) << d.text;
    for (std::size_t j = 0; j < best.size(); ++j) EXPECT_EQ(found[j].choice, best[j].choice) << j << "\n" << d.text;
    ++refused;
  }
  EXPECT_GT(refused, 3);
}

// The deck lines of a found layout must give the same layout, and the memory plan of that deck the same bytes.
TEST(search, deck_lines_reproduce_the_found_layout) {
  Dice dice(seed_of_run());
  int seen = 0;
  for (int i = 0; i < 40 && seen < 6; ++i) {
    Drawn d = draw(dice, dice.coin(), dice.coin());
    if (d.ranks > 1 && dice.coin()) d = parted(dice, d);
    d.run.parallel.islands.clear();
    const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, {.best = 3});
    for (const FoundLayout& f : found.best) {
      Deck deck = Deck::parse(d.text, "drawn", deck_lines(f.choice, d.run.parallel.keep, found.islands));
      RunConfig run = read_run_config(deck);
      deck.finish();
      run.planned_gpu = d.cluster.device.gpu;
      const Layout layout = layout_of(run, d.ranks);
      LayoutChoice printed = f.choice;
      printed.alpha = -1;
      EXPECT_EQ(choice_of(run, layout), printed) << f.choice.text();
      EXPECT_FALSE(run.offload.find_alpha);
      const EngineConfig config = engine_config(run, layout);
      Index largest_rank = 0, host = 0;
      for (int position = 0; position < layout.ranks(); ++position) {
        const Capacity capacity = plan_rank(config, layout, position).capacity;
        largest_rank = std::max(largest_rank, capacity.total()), host = std::max(host, capacity.host());
      }
      EXPECT_EQ(f.bytes, largest_rank) << f.choice.text() << " " << name_of(f.choice.shard) << "\n" << d.text;
      EXPECT_EQ(f.host, host) << f.choice.text() << "\n" << d.text;
      EXPECT_EQ(predict(StagePlans(config, layout), config, layout, d.cluster).seconds, f.prediction.seconds);
    }
    ++seen;
  }
}

TEST(search, refusals_count_layouts_per_rule) {
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

// A search without bounds counts exactly the layouts that fit the memory of a device, but not beside its reserve.
TEST(search, search_leaves_the_reserve_of_every_device) {
  Dice dice(seed_of_run());
  int refused = 0;
  for (int i = 0; i < 60 && refused < 8; ++i) {
    Drawn d = draw(dice, true);
    if (all_of(d).empty() || all_of(d).size() > 120) continue;
    d.cluster.device.reserve = 0;
    const SearchResult every = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none});
    std::vector<Index> bytes;
    for (const FoundLayout& f : every.best) bytes.push_back(f.bytes);
    std::sort(bytes.begin(), bytes.end());
    if (bytes.front() == bytes.back()) continue;
    d.cluster.device.memory = double(bytes.back()), d.cluster.device.reserve = double(bytes.back() - bytes[bytes.size() / 2]);
    const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none});
    const auto fit = std::count_if(bytes.begin(), bytes.end(), [&](Index b) { return double(b) <= d.cluster.device.usable(); });
    EXPECT_EQ(std::ptrdiff_t(found.best.size()), fit);
    EXPECT_EQ(found.by_reserve, double(bytes.size()) - double(fit));
    for (const FoundLayout& f : search(d.run, d.ranks, d.cluster).best)
      EXPECT_GE(d.cluster.device.memory - double(f.bytes), d.cluster.device.reserve) << f.choice.text();
    ++refused;
  }
  EXPECT_GT(refused, 4);
}

// memory.device_bytes limits the plan itself: the reserve is not subtracted again.
TEST(search, device_limit_leaves_the_reserve_alone) {
  Cluster c;
  c.device.memory = 80, c.device.reserve = 4;
  c.limit_memory(60);
  EXPECT_EQ(c.device.usable(), 60);
  c.limit_memory(79);
  EXPECT_EQ(c.device.usable(), 60);
}

// The place of the deck's own layout is its place among all layouts, each predicted.
TEST(search, deck_layout_has_its_brute_force_place) {
  Dice dice(seed_of_run());
  int seen = 0, later = 0, beyond = 0;
  for (int i = 0; i < 200 && seen < 16; ++i) {
    Drawn d = draw(dice, true, i % 3 == 2);
    const std::vector<LayoutChoice> all = all_of(d);
    if (all.empty() || all.size() > 150) continue;
    d.run = with(d.run, dice.one_of(all));
    if (all_of(d).empty()) continue;
    const SearchResult every = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none});
    const auto place_of = [&](const LayoutChoice& own) {
      const auto at = std::find_if(every.best.begin(), every.best.end(), [&](const FoundLayout& f) { return f.choice == own; });
      return std::size_t(at - every.best.begin()) + 1;
    };
    const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, {.best = 2, .place_within = 1000});
    ASSERT_TRUE(found.own && found.own->found) << d.text;
    ASSERT_LE(place_of(found.own->choice), every.best.size()) << "not among the layouts: " << found.own->choice.text() << "\n" << d.text;
    EXPECT_EQ(found.own->place, place_of(found.own->choice)) << found.own->choice.text() << "\n" << d.text;
    EXPECT_LE(found.best.size(), 2u);
    const SearchResult few = search(d.run, d.ranks, d.cluster, nullptr, {.best = 2, .place_within = 3});
    if (found.own->place > 3) EXPECT_EQ(few.own->place, 0u) << d.text;
    else EXPECT_EQ(few.own->place, found.own->place) << d.text;
    ++seen, later += found.own->place > 1, beyond += found.own->place > 3;
  }
  EXPECT_GT(seen, 10);
  EXPECT_GT(later, 5);
  EXPECT_GT(beyond, 2);
}

// A search that a time limit ends lists predicted layouts in their order. Those below its lower bound are the fastest of
// all layouts, and no layout that it did not predict takes less than the bound.
TEST(search, time_limit_bounds_layouts_not_predicted) {
  Dice dice(seed_of_run());
  int seen = 0, ended = 0, certain = 0;
  for (int i = 0; i < 200 && seen < 12; ++i) {
    Drawn d = draw(dice, true, i % 3 == 2);
    const std::vector<LayoutChoice> all = all_of(d);
    if (all.size() < 20 || all.size() > 150) continue;
    const SearchResult every = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none});
    if (every.best.empty()) continue;
    const int best = dice.between(1, 4);
    const double seconds = 0.02 * dice.between(0, 4);
    const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, {.best = best, .place_within = dice.coin() ? 3u : 0u, .seconds = seconds});
    ++seen, ended += found.ended;
    ASSERT_LE(found.best.size(), std::size_t(best)) << d.text;
    ASSERT_FALSE(found.best.empty()) << d.text << search_result_text(found);
    for (std::size_t j = 0; j < found.best.size(); ++j) {
      const auto at = std::find_if(every.best.begin(), every.best.end(), [&](const FoundLayout& f) { return f.choice == found.best[j].choice; });
      ASSERT_NE(at, every.best.end()) << d.text;
      EXPECT_EQ(at->prediction.seconds, found.best[j].prediction.seconds) << d.text;
      if (j > 0) {
        EXPECT_LE(found.best[j - 1].prediction.seconds, found.best[j].prediction.seconds) << d.text;
      }
      if (!found.ended || found.best[j].prediction.seconds < found.least_slower) {
        EXPECT_EQ(found.best[j].choice, every.best[j].choice) << d.text;
        ++certain;
      }
    }
    // a layout faster than the bound is always listed, unless the list is full of faster ones
    for (std::size_t j = 0; j < every.best.size() && found.ended && every.best[j].prediction.seconds < found.least_slower; ++j)
      EXPECT_TRUE(j >= found.best.size() || found.best[j].choice == every.best[j].choice) << d.text;
    if (found.own && found.own->place > 0) {
      EXPECT_EQ(every.best[found.own->place - 1].choice, found.own->choice) << d.text;
    }
    EXPECT_EQ(found.layouts, every.layouts);
  }
  EXPECT_GT(seen, 8);
  EXPECT_GT(ended, 3);
  EXPECT_GT(certain, 2);
}

// One search finds for each part of the memory what brute force finds in it.
TEST(search, best_layouts_within_parts_are_exact) {
  Dice dice(seed_of_run());
  int seen = 0, differ = 0;
  for (int i = 0; i < 200 && seen < 12; ++i) {
    Drawn d = draw(dice, true);
    const std::vector<LayoutChoice> all = all_of(d);
    if (all.size() < 10 || all.size() > 150 || !d.cluster.parts.empty()) continue;
    const SearchResult every = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none});
    Index most = 0;
    for (const FoundLayout& f : every.best) most = std::max(most, f.bytes);
    d.cluster.device.memory = double(most) + d.cluster.device.reserve;
    const int best = dice.between(1, 4);
    const std::vector<double> parts{1, dice.real(0.6, 1), dice.real(0.2, 0.6)};
    const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, {.best = best, .memory_parts = parts});
    ASSERT_EQ(found.best_within.size(), parts.size());
    for (std::size_t part = 0; part < parts.size(); ++part) {
      std::vector<LayoutChoice> expected, here;
      for (const FoundLayout& f : every.best)
        if (double(f.bytes) <= parts[part] * d.cluster.device.usable() && expected.size() < std::size_t(best)) expected.push_back(f.choice);
      for (const FoundLayout& f : found.best_within[part]) here.push_back(f.choice);
      EXPECT_EQ(here, expected) << "part " << parts[part] << "\n" << d.text;
    }
    ++seen, differ += found.best_within.back().empty() || found.best_within.back().front().choice != found.best.front().choice;
  }
  EXPECT_GT(seen, 8);
  EXPECT_GT(differ, 2);
}

// Processor time and elapsed time, in seconds.
struct Times {
  double processor = double(std::clock()) / CLOCKS_PER_SEC;
  double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();

  double since(const Times& begin) const { return std::max(processor - begin.processor, (elapsed - begin.elapsed) / SearchTime::most_elapsed); }
};

// A search that waits for a processor has the time that it computes, but at least a quarter of the elapsed time.
TEST(search, waiting_counts_a_quarter_of_its_time) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 20; ++i) {
    const Times before;
    const SearchTime time;
    const Times after;
    if (dice.coin()) std::this_thread::sleep_for(std::chrono::milliseconds(dice.between(1, 40)));
    else
      for (const Times begin; Times().processor < begin.processor + 1e-3 * dice.between(1, 10);) continue;
    const Times early;
    const double seconds = time.seconds();
    const Times late;
    EXPECT_GE(seconds, early.since(after) - 1e-6);
    EXPECT_LE(seconds, late.since(before) + 1e-6);
  }
}

TEST(search, neighbours_are_mutual) {
  Dice dice(seed_of_run());
  std::size_t seen = 0, other_grids = 0;
  for (int i = 0; i < 60; ++i) {
    const Drawn d = draw(dice, i % 2 == 0);
    const std::vector<LayoutChoice> all = all_of(d), shapes = space_of(d.run, d.ranks).shapes;
    if (all.empty()) continue;
    const LayoutChoice c = dice.one_of(all);
    for (const LayoutChoice& n : neighbours_of(d.run, c, shapes)) {
      const std::vector<LayoutChoice> back = neighbours_of(d.run, n, shapes);
      EXPECT_NE(n, c);
      EXPECT_NE(std::find(back.begin(), back.end(), c), back.end()) << c.text() << " and " << n.text();
      ++seen, other_grids += n.pipeline != c.pipeline || n.tensor != c.tensor;
    }
  }
  EXPECT_GT(seen, 100u);
  EXPECT_GT(other_grids, 10u);
}

// A search without time still finds a layout that no single change makes faster. The spaces are smaller than the limit of a descent.
TEST(search, ended_search_finds_local_optimum) {
  Dice dice(seed_of_run());
  int seen = 0, compared = 0;
  for (int i = 0; i < 300 && seen < 15; ++i) {
    Drawn d = draw(dice, true);
    const std::vector<LayoutChoice> all = all_of(d);
    if (all.size() < 10 || all.size() > 50) continue;
    std::map<LayoutChoice, double> times;
    for (const FoundLayout& f : search(d.run, d.ranks, d.cluster, nullptr, {.best = 1 << 30, .pruning = Pruning::none}).best)
      times[f.choice] = f.prediction.seconds;
    const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, {.best = 1, .seconds = 0});
    if (times.empty() || !found.ended) continue;
    ++seen;
    ASSERT_FALSE(found.best.empty()) << d.text;
    for (const LayoutChoice& n : neighbours_of(d.run, found.best.front().choice, space_of(d.run, d.ranks).shapes))
      if (const auto at = times.find(n); at != times.end()) {
        ++compared;
        EXPECT_GE(at->second, found.best.front().prediction.seconds) << n.text() << " and " << found.best.front().choice.text() << "\n" << d.text;
      }
  }
  EXPECT_GT(seen, 8);
  EXPECT_GT(compared, 30);
}

TEST(search, progress_is_reported_for_every_candidate) {
  Dice dice(1);
  Drawn d = draw(dice, true);
  std::vector<SearchProgress> reports;
  const SearchResult found = search(d.run, d.ranks, d.cluster, nullptr, {.best = 2, .watch = [&](const SearchProgress& p) { reports.push_back(p); }});
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().predicted, found.predicted);
  EXPECT_EQ(reports.back().ranked, found.best.size());
  EXPECT_EQ(reports.back().dry_runs, found.dry_runs);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].layouts, found.layouts);
    EXPECT_TRUE(i == 0 || reports[i].predicted >= reports[i - 1].predicted);
  }
}

TEST(search, more_ranks_than_the_cluster_has_are_refused) {
  Dice dice(1);
  Drawn d = draw(dice, true);
  d.cluster.nodes = 1, d.cluster.per_node = 1, d.ranks = 2;
  EXPECT_THROW(search(d.run, d.ranks, d.cluster), Error);
}

TEST(search, too_many_pending_layouts_are_refused) {
  Dice dice(seed_of_run());
  Drawn d = draw(dice, false);
  while (all_of(d).size() < 100) d = draw(dice, false);
  const Error error = error_of([&] { search(d.run, d.ranks, d.cluster, nullptr, {.waiting = 3}); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("parallel.keep"), std::string::npos) << error.what();
}

// A lower bound that omits a cost loses no layout, but then more layouts must be predicted. This test limits their
// number.
TEST(search, few_layouts_of_large_models_are_predicted) {
  for (const char* name : {"llama-3.2-1b", "mixtral-8x7b", "gpt-oss-20b"}) {
    Deck deck = Deck::read(fmt::format("{}/input/{}.yaml", GYR_SOURCE_DIR, name));
    const RunConfig run = read_run_config(deck);
    const SearchResult found = search(run, 64, read_cluster(GYR_SOURCE_DIR "/input/clusters/h100.yaml"));
    EXPECT_EQ(found.best.size(), 10u) << name;
    EXPECT_LE(found.predicted, 40u) << name << ": of " << found.layouts << " layouts";
  }
}

// Weights and optimizer states of 34B nearly fill 8 devices, so that the memory bound excludes few layouts. After some
// hundred dry runs the search gives up, if the layouts with the smallest bounds do not fit either.
// Near the limit of memory, the bounds of time exclude few layouts. The time limit then ends the search, after those that need
// least memory have been tried.
TEST(search, time_limit_ends_search_near_memory_limit) {
  Deck deck = Deck::read(GYR_SOURCE_DIR "/input/falcon-h1-34b.yaml");
  const RunConfig run = read_run_config(deck);
  Cluster cluster = read_cluster(GYR_SOURCE_DIR "/input/clusters/h100.yaml");
  const SearchResult none = search(run, 8, cluster, nullptr, {.seconds = 1});
  EXPECT_TRUE(none.best.empty());
  EXPECT_TRUE(none.ended);
  EXPECT_GT(none.least.takes, none.least.has);
  const std::string message = error_of([&] { require_found(run, none, 8, cluster); }).what();
  for (const char* part : {"no layout of 8 ranks", "the smallest of those needs", "--search-seconds 0", "more ranks"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  std::smatch sizes;
  ASSERT_TRUE(std::regex_search(message, sizes, std::regex("needs ([0-9.]+) GiB of ([0-9.]+) GiB"))) << message;
  EXPECT_NE(sizes[1], sizes[2]) << "sizes that differ are printed so";
  cluster.device.memory += 8.0 * (1 << 30);  // now those that need least fit
  const SearchResult some = search(run, 8, cluster, nullptr, {.seconds = 1});
  ASSERT_FALSE(some.best.empty());
  EXPECT_LE(double(some.best.front().bytes), cluster.device.usable());
}

// The same holds if some weights of each layer are frozen.
TEST(search, few_layouts_are_predicted_with_frozen_weights) {
  for (const char* name : {"gpt2-124m", "mamba2-130m"}) {
    Deck deck = Deck::read(fmt::format("{}/input/{}.yaml", GYR_SOURCE_DIR, name), std::vector<std::string>{"optimizer.frozen=[\"*norm*\"]"});
    const RunConfig run = read_run_config(deck);
    const SearchResult found = search(run, 2, read_cluster(GYR_SOURCE_DIR "/input/clusters/h100.yaml"));
    EXPECT_EQ(found.best.size(), 10u) << name;
    EXPECT_LE(found.predicted, 40u) << name << ": of " << found.layouts << " layouts";
  }
}

TEST(search, offloading_without_host_bandwidth_is_refused) {
  Dice dice(seed_of_run());
  Drawn d = draw(dice, false, true);
  d.cluster.host.bandwidth = 0;
  const std::string why = error_of([&] { search(d.run, d.ranks, d.cluster); }).what();
  EXPECT_NE(why.find("host.bandwidth"), why.npos) << why;
}

}  // namespace
}  // namespace gyr::testing::search_suite
