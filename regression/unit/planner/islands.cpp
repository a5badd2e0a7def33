// SPDX-License-Identifier: BSD-3-Clause
// Machines with islands (sets of nodes with the same device type and interconnect): frequent communication stays inside
// an island where possible, slower ranks get fewer layers, and the traffic over slow links is counted.
#include "src/parallel/islands.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "modules/layers/expert_exchange.hpp"
#include "regression/planner/random_run.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/commands/cluster_report.hpp"
#include "src/config/layout_rules.hpp"

namespace gyr::testing::islands_suite {
namespace {

// Random islands with as many ranks in total as the layout has. If `entire_island`, each island holds complete pipeline stages.
Islands draw_islands(Dice& dice, const Layout& layout, bool entire_island) {
  const int pipeline = layout.size(Axis::pipeline), grain = entire_island ? layout.ranks() / pipeline : 1;
  Islands islands;
  for (int left = layout.ranks() / grain; left > 0;) {
    const int here = dice.between(1, left);
    islands.push_back({fmt::format("i{}", islands.size()), here * grain, dice.real(0.5, 2)});
    left -= here;
  }
  return islands;
}

Layout ordered(Layout layout, const Islands& islands) {
  layout.permutation = order_by_islands(layout, islands);
  return layout;
}

TEST(islands, only_pipeline_groups_cross_islands_when_stages_fit) {
  Dice dice(seed_of_run());
  int crossed = 0;
  for (int i = 0; i < 100; ++i) {
    const Drawn d = draw(dice);
    const bool entire_island = dice.coin();
    const Islands islands = draw_islands(dice, d.layout, entire_island);
    const Layout layout = ordered(d.layout, islands);
    check_permutation(layout.permutation, layout.ranks());
    const int tensor = layout.size(Axis::tensor);
    const bool tensor_fits = std::all_of(islands.begin(), islands.end(), [&](const Island& island) { return island.ranks % tensor == 0; });
    for (const Axis axis : {Axis::data, Axis::context, Axis::tensor}) {
      const bool fits = entire_island || (axis == Axis::tensor && tensor_fits);
      EXPECT_FALSE(fits && crosses(layout, islands, axis)) << name_of(axis) << " crosses islands in " << layout.text();
      for (int position = 0; position < layout.ranks() && !crosses(layout, islands, axis); ++position)
        for (const int rank : ranks_of(layout, position, Axes(axis).text()))
          EXPECT_EQ(island_of(islands, rank), island_of(islands, layout.rank_at(position)));
    }
    // The stages of an island are consecutive along the pipeline: the number of boundaries is one less than the number
    // of islands.
    int borders = 0;
    for (int stage = 1; stage < layout.size(Axis::pipeline); ++stage)
      borders += island_of(islands, ranks_of(layout, 0, "pipeline")[std::size_t(stage)]) !=
                 island_of(islands, ranks_of(layout, 0, "pipeline")[std::size_t(stage) - 1]);
    EXPECT_TRUE(!entire_island || borders == int(islands.size()) - 1);
    const std::string text = text_of(layout, islands);
    const bool across = crosses(layout, islands, Axis::data) || crosses(layout, islands, Axis::context) || crosses(layout, islands, Axis::tensor);
    EXPECT_EQ(text.find("do not divide") != std::string::npos, across) << text;
    crossed += across;
  }
  EXPECT_GT(crossed, 5);
}

std::vector<Index> sizes_of(const std::vector<Span>& spans) {
  std::vector<Index> sizes;
  for (const Span& span : spans) sizes.push_back(span.size());
  return sizes;
}

double slowest(const std::vector<Index>& layers, const std::vector<double>& speeds) {
  double most = 0;
  for (std::size_t s = 0; s < layers.size(); ++s) most = std::max(most, double(layers[s]) / speeds[s]);
  return most;
}

// Makespan of 1F1B with `micros` micro-batches. A layer takes 1 / speed forward and 2 / speed backward.
double makespan(const std::vector<Index>& layers, const std::vector<double>& speeds, int micros) {
  std::vector<Program> programs;
  std::vector<TaskTimes> times;
  for (std::size_t rank = 0; rank < layers.size(); ++rank) {
    programs.push_back(compile(one_f_one_b, {int(layers.size()), 1, micros}, int(rank)));
    TaskTimes& of_rank = times.emplace_back();
    for (const Task& t : programs.back().tasks)
      of_rank.seconds.push_back((t.op == Op::forward ? 1 : t.op == Op::backward ? 2 : 0) * double(layers[rank]) / speeds[rank]);
  }
  return timeline(programs, times).makespan;
}

// Two clusters with 197 and 160 TFLOP/s, and 48 layers on four stages: 13, 13, 11 and 11 layers instead of 12 each
// reduce the makespan by 6.9 %.
TEST(islands, slower_stages_get_fewer_layers) {
  const std::vector<double> speeds{197, 197, 160, 160};
  const std::vector<Index> stage_sizes = sizes_of(split_stages(std::vector<double>(48, 1), 0, 0, 4, speeds)), even(4, 12);
  EXPECT_EQ(stage_sizes, (std::vector<Index>{13, 13, 11, 11}));
  EXPECT_NEAR(makespan(even, speeds, 16), 4.190, 5e-4);
  EXPECT_NEAR(makespan(stage_sizes, speeds, 16), 3.902, 5e-4);
  // Holmes gives the first stage floor(N S / sum of S) layers (N layers, S speed): 26 and 22 of 48, 16 and 14 of 30.
  // The slowest stage here is never slower.
  for (const auto& [layers, first] : {std::pair<Index, Index>{48, 26}, {30, 16}}) {
    EXPECT_EQ(layers * 197 / 357, first);
    const std::vector<double> two{197, 160};
    EXPECT_LE(slowest(sizes_of(split_stages(std::vector<double>(std::size_t(layers), 1), 0, 0, 2, two)), two), slowest({first, layers - first}, two));
  }
}

// Exhaustive search: no other split into stages has a faster slowest stage.
TEST(islands, stage_split_by_speed_is_optimal) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 300; ++i) {
    const int layers = dice.between(1, 9), stages = dice.between(1, std::min(4, layers));
    std::vector<double> costs, speeds;
    for (int l = 0; l < layers; ++l) costs.push_back(dice.real(0.1, 3));
    for (int s = 0; s < stages; ++s) speeds.push_back(dice.real(0.3, 3));
    const double before = dice.real(0, 2), after = dice.real(0, 2);
    const auto slowest_of = [&](const std::vector<Span>& spans) {
      double most = 0;
      for (int s = 0; s < stages; ++s) {
        double cost = (s == 0 ? before : 0) + (s == stages - 1 ? after : 0);
        for (Index l = spans[std::size_t(s)].first; l < spans[std::size_t(s)].last; ++l) cost += costs[std::size_t(l)];
        most = std::max(most, cost / speeds[std::size_t(s)]);
      }
      return most;
    };
    const double found = slowest_of(split_stages(costs, before, after, stages, speeds));
    double least = INFINITY;
    std::vector<bool> is_border(std::size_t(layers - 1), false);
    std::fill(is_border.end() - (stages - 1), is_border.end(), true);
    do {
      std::vector<Span> spans{{0, 0}};
      for (int l = 0; l < layers; ++l) {
        ++spans.back().last;
        if (l + 1 < layers && is_border[std::size_t(l)]) spans.push_back({l + 1, l + 1});
      }
      least = std::min(least, slowest_of(spans));
    } while (std::next_permutation(is_border.begin(), is_border.end()));
    EXPECT_DOUBLE_EQ(found, least) << layers << " layers, " << stages << " stages";
  }
}

// A random cluster with one part per island, each with its own device type and one node that holds all ranks of the
// island.
Cluster cluster_of(Dice& dice, const Islands& islands) {
  Cluster c = random_cluster(dice);
  for (const Island& island : islands) {
    Cluster part = random_cluster(dice);
    part.name = island.name, part.nodes = 1, part.per_node = island.ranks, part.island_nodes = 0;
    c.parts.push_back(part);
  }
  c.nodes = c.island_nodes = 0;
  return c;
}

// Links between islands carry only pipeline messages, sums over the first and last stage, and gradient norms. Pipeline
// messages have 2 b s h elements (micro-batch size, sequence length, hidden size) per stage boundary between islands
// and micro-batch.
TEST(islands, slow_links_carry_pipeline_boundary_messages) {
  Dice dice(seed_of_run());
  int seen = 0;
  for (int i = 0; i < 60; ++i) {
    Drawn d = draw(dice);
    const Islands islands = d.run.parallel.islands = draw_islands(dice, d.layout, true);
    const RunPlan plan(d.run, d.layout.ranks());
    const Layout& layout = plan.layout;
    const LinkTraffic traffic = link_traffic(plan.ranks, plan.config, layout, cluster_of(dice, islands), 100);
    const auto stage_island = [&](int stage) {
      return island_of(islands, layout.rank_at(layout.position_at([&](Axis a) { return a == Axis::pipeline ? stage % layout.size(a) : 0; })));
    };
    int borders = 0;
    for (std::size_t stage = 1; stage < layout.stages.size(); ++stage) borders += stage_island(int(stage)) != stage_island(int(stage) - 1);
    double sent = 0, messages = 0;
    for (const LinkTraffic::Line& line : traffic.lines) {
      if (line.link != LinkClass::islands) continue;
      const bool pipeline = line.communicator == "pipeline" && line.operation == Operation::send;
      if (pipeline) messages += line.bytes;
      EXPECT_TRUE(pipeline || line.communicator == "embedding" || line.communicator.find("pipeline") != std::string::npos)
          << line.communicator << " " << name_of(line.operation);
    }
    const Index rows = layout.sequences(0, d.config.micro_batch_size, d.config.seq_length).rows();
    const Index local_rows = layout.sequence ? StreamRows{rows, layout.stream_parts()}.rows_per_part() : rows;
    for (int position = 0; position < layout.ranks(); ++position)
      if (layout.coordinate(position, Axis::pipeline) == 0)
        sent += 2.0 * borders * d.config.micros * double(local_rows * d.config.model.hidden_size) * 4;
    EXPECT_NEAR(messages, sent, 1e-9 * sent) << layout.text();
    seen += borders > 0;
  }
  EXPECT_GT(seen, 15);
}

// Islands of equal devices give the same prediction as one description of equal nodes. A slower island never makes the
// step faster.
TEST(islands, equal_islands_predict_same_time_as_one_cluster) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 40; ++i) {
    const Drawn d = draw(dice);
    Cluster c = random_cluster(dice);
    c.per_node = dice.between(1, 4), c.island_nodes = dice.between(1, 3);
    c.nodes = c.island_nodes * ((d.layout.ranks() + c.island_nodes * c.per_node - 1) / (c.island_nodes * c.per_node));
    Cluster parted = c;
    parted.nodes = parted.island_nodes = 0;
    for (Index node = 0; node < c.nodes; node += c.island_nodes) {
      Cluster part = c;
      part.nodes = c.island_nodes, part.island_nodes = 0;
      parted.parts.push_back(part);
    }
    const StagePlans plans(d.config, d.layout);
    const double seconds = predict(plans, d.config, d.layout, c).seconds;
    const double same = predict(plans, d.config, d.layout, parted).seconds;  // data-parallel replicas on several islands wait for the slowest
    EXPECT_GE(same, seconds * (1 - 1e-12)) << d.layout.text();
    EXPECT_TRUE(same == seconds || d.layout.size(Axis::data) > 1) << d.layout.text();
    Cluster& slower = parted.parts[std::size_t(dice.between(0, int(parted.parts.size()) - 1))];
    slower.device.fp32 /= 2, slower.device.memory_bandwidth /= 2;
    EXPECT_GE(predict(plans, d.config, d.layout, parted).seconds, seconds * (1 - 1e-12));
  }
}

Islands islands_in(const std::string& text) {
  Deck deck = Deck::parse("cluster: {emulate: \"" + text + "\"}", "deck");
  return read_islands(deck.section("cluster", "", Effect::none));
}

TEST(islands, cluster_file_combines_islands_of_other_files) {
  Dice dice(seed_of_run());
  const Folder folder;
  std::filesystem::create_directory(folder / "there");
  std::vector<Cluster> parts;
  for (int i = 0; i < 3; ++i) {
    Cluster c = random_cluster(dice);
    c.name = fmt::format("part {}", i), c.nodes = dice.between(1, 5);
    std::ofstream(folder / fmt::format("there/{}.yaml", i)) << to_yaml(c, "");
    parts.push_back(c);
  }
  const auto read = [&](const std::string& text) {
    std::ofstream(folder / "there/all.yaml") << text;
    return read_cluster(folder / "there/all.yaml");
  };
  const std::string links = "links: {islands: {latency: 50, bandwidth: 1.25}}\n";
  const Cluster all = read("cluster: {name: all}\nislands: {files: [0.yaml, 1.yaml, 2.yaml], nodes: [2, 1, 4]}\n" + links);
  ASSERT_EQ(all.parts.size(), 3u);
  const std::vector<Index> nodes{2, 1, 4};
  Index rank = 0, node = 0;
  for (int island = 0; island < 3; ++island)
    for (Index n = 0; n < nodes[std::size_t(island)]; ++n, ++node)
      for (Index i = 0; i < parts[std::size_t(island)].per_node; ++i, ++rank) {
        EXPECT_EQ(all.place_of(rank).island, island);
        EXPECT_EQ(all.place_of(rank).node, node);
      }
  EXPECT_EQ(all.devices(), rank);
  EXPECT_EQ(all.islands.bandwidth, 1.25e9);
  const Islands islands = islands_of(all, int(rank), DType::bf16);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(islands[i].name, fmt::format("{}", i));
    EXPECT_NEAR(islands[i].speed / (1e-12 * parts[i].device.bf16 * parts[i].fit.gemms), 1, 1e-4);
  }
  const Islands parsed = islands_in(to_text(islands));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parsed[i].name, islands[i].name);
    EXPECT_EQ(parsed[i].ranks, islands[i].ranks);
    EXPECT_NEAR(parsed[i].speed / islands[i].speed, 1, 1e-4);
  }
  const Cluster twice = read("islands: {files: [0.yaml, 0.yaml, 0.yaml]}\n" + links);
  EXPECT_NO_THROW(islands_in(to_text(islands_of(twice, int(twice.devices()), DType::bf16))));
  EXPECT_TRUE(islands_of(all, int(2 * parts[0].per_node), DType::bf16).empty()) << "all ranks are on the first island";
  const auto refused = [&](const std::string& text, const char* why) {
    try {
      read(text);
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_TRUE(e.code == Exit::config || e.code == Exit::missing);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused("islands: {files: [0.yaml, 1.yaml], nodes: [2]}\n" + links, "1 node counts for 2 files; give one count per file");
  refused("islands: {files: [0.yaml, none.yaml]}\n" + links, "none.yaml: cluster description not found");
  refused("islands: {files: [0.yaml, all.yaml]}\n" + links, "all.yaml");
  refused("islands: {files: [0.yaml, 1.yaml]}\n", "bandwidth");
}

TEST(islands, emulate_key_gives_island_names_ranks_and_speeds) {
  EXPECT_TRUE(islands_in("").empty());
  EXPECT_EQ(islands_in("a:4,b:4"), (Islands{{"a", 4, 1}, {"b", 4, 1}}));
  EXPECT_EQ(islands_in("ib:2:197, roce:6:160.5"), (Islands{{"ib", 2, 197}, {"roce", 6, 160.5}}));
  EXPECT_EQ(islands_in(to_text({{"x", 3, 0.5}, {"y", 1, 1}})), (Islands{{"x", 3, 0.5}, {"y", 1, 1}}));
  for (const char* wrong : {"a", "a:", ":4", "a:4,", "a:0", "a:-1", "a:4:0", "a:4:x", "a:4:1:2", "a:4,a:4", "a:4:inf", "a:4:nan", "a:99999999999",
                            "a:1000000,b:1000000"}) {
    try {
      islands_in(wrong);
      ADD_FAILURE() << wrong << " was accepted as a list of islands";
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Exit::config);
      EXPECT_NE(std::string(e.what()).find("cluster.emulate = '"), std::string::npos) << e.what();
    }
  }
  Deck deck = Deck::parse("cluster: {emulate: \"a:4,b:4\"}\nmodel: {pattern: PP}", "deck");
  const RunConfig run = read_run_config(deck);
  EXPECT_THROW(layout_of(run, 6), Error);
}

}  // namespace
}  // namespace gyr::testing::islands_suite
