// SPDX-License-Identifier: BSD-3-Clause
// Predicted step times: the parts add up to the total, extrapolation equals a full simulation, and published step times
// are predicted within a stated error.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "regression/planner/published.hpp"
#include "regression/planner/random_cluster.hpp"
#include "regression/planner/random_run.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/commands/cluster_report.hpp"
#include "src/deck/amount.hpp"
#include "src/planner/machine/collective.hpp"
#include "src/planner/machine/kernel_times.hpp"
#include "src/planner/machine/profile.hpp"
#include "src/planner/predict/prediction.hpp"
#include "src/train/engine_config.hpp"

namespace gyr::testing::planner_suite {
namespace {

namespace fs = std::filesystem;

void expect_refused(const std::function<void()>& what, std::initializer_list<const char*> parts) {
  try {
    what();
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config);
    for (const char* part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << " in " << e.what();
  }
}

TEST(planner, cluster_description_reads_back) {
  Dice dice(seed_of_run());
  const Folder folder;
  for (int i = 0; i < 20; ++i) {
    const Cluster c = random_cluster(dice);
    const std::string file = folder / "cluster.yaml", text = to_yaml(c, "why\nand how");
    std::ofstream(file) << text;
    const Cluster back = read_cluster(file);
    EXPECT_EQ(to_yaml(back, "why\nand how"), text);
    EXPECT_EQ(back.name, c.name);
    EXPECT_NEAR(back.islands.bandwidth / c.islands.bandwidth, 1, 1e-5);
    EXPECT_NEAR(back.node.sums / c.node.sums, 1, 1e-5);
    EXPECT_EQ(back.links_overlap, c.links_overlap);
    EXPECT_NEAR(back.device.reserve, c.device.reserve, 1e-5 * c.device.reserve);
    EXPECT_EQ(back.device.gpu, c.device.gpu);
    EXPECT_NEAR(back.storage, c.storage, 1e-5 * c.storage);
    EXPECT_NEAR(back.errors.measured, c.errors.measured, 1e-5);
    EXPECT_EQ(back.errors.measured_steps, c.errors.measured_steps);
    EXPECT_NEAR(back.device.fp32 / c.device.fp32, 1, 1e-5);
    EXPECT_NEAR(back.fit.step, c.fit.step, 1e-5 * c.fit.step);
  }
}

TEST(planner, bundled_cluster_files_load_and_errors_name_lines) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(GYR_SOURCE_DIR) / "input/clusters")) {
    if (entry.path().extension() != ".yaml") continue;
    const Cluster c = read_cluster(entry.path());
    ++files;
    EXPECT_GT(c.device.bf16, c.device.fp32) << entry.path();
    EXPECT_GT(c.node.bandwidth, c.network.bandwidth) << entry.path();
    for (int island = 0; island < std::max(1, int(c.parts.size())); ++island) {
      EXPECT_LT(c.island(island).fit.gemms, 1) << entry.path() << ": the GEMM efficiency must be below 1";
      EXPECT_GE(c.island(island).device.reserve, double(1 << 30)) << entry.path() << ": CUDA context and NCCL take more than 1 GiB";
      EXPECT_TRUE(c.island(island).device.gpu) << entry.path();
      EXPECT_GT(c.island(island).errors.largest(), 0) << entry.path();
    }
  }
  EXPECT_GE(files, 4);
  const Folder folder;
  std::ofstream(folder / "bad.yaml") << to_yaml(Cluster{}, "");
  try {
    read_cluster(folder / "bad.yaml");
    FAIL() << "a device without memory was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config);
    EXPECT_NE(std::string(e.what()).find("bad.yaml:7"), std::string::npos) << e.what();
  }
  EXPECT_THROW(read_cluster(folder / "none.yaml"), Error);
}

// Values with a unit equal those in the unit of the key. Other units are refused with both.
TEST(planner, cluster_values_are_read_with_their_units) {
  const Folder folder;
  const auto text_with = [&](const std::string& memory, const std::string& network, const std::string& latency) {
    return fmt::format(
        "device: {{per_node: 8, memory: {}, memory_bandwidth: 3.35 TB/s, bf16: 0.989 PFLOP/s, fp32: 67TFLOPS, fp64: 67, watts: 0.7kW}}\n"
        "links:\n  node: {{latency: {}, bandwidth: 450}}\n  network: {{bandwidth: {}}}\nfit: {{step: 1000us}}\nerrors: {{published: 2.5 %}}\n",
        memory, latency, network);
  };
  const auto read = [&](const std::string& text) {
    std::ofstream(folder / "units.yaml") << text;
    return read_cluster(folder / "units.yaml");
  };
  const Cluster plain = read(text_with("80", "50", "5"));
  EXPECT_DOUBLE_EQ(plain.device.memory, 80 * 0x1p30);
  EXPECT_DOUBLE_EQ(plain.device.memory_bandwidth, 3.35e12);
  EXPECT_DOUBLE_EQ(plain.device.bf16, 989e12);
  EXPECT_DOUBLE_EQ(plain.device.fp32, 67e12);
  EXPECT_DOUBLE_EQ(plain.device.watts, 700);
  EXPECT_DOUBLE_EQ(plain.fit.step, 1e-3);
  EXPECT_DOUBLE_EQ(plain.errors.published, 0.025);
  EXPECT_EQ(to_yaml(read(text_with("80GiB", "400Gb/s", "5us")), ""), to_yaml(plain, ""));
  EXPECT_EQ(to_yaml(read(text_with("80 GiB", "400 Gbit/s", "0.005 ms")), ""), to_yaml(plain, ""));
  EXPECT_EQ(to_yaml(read(text_with("80 GiB", "50GB/s", "5")), ""), to_yaml(plain, ""));
  EXPECT_DOUBLE_EQ(read(text_with("80GB", "50", "5")).device.memory, 80e9);
  EXPECT_EQ(to_yaml(read(text_with("8e1GiB", "4E2 Gb/s", "5e-6s")), ""), to_yaml(plain, ""));
  for (const char* odd : {"nan", "inf GiB"}) expect_refused([&] { read(text_with(odd, "50", "5")); }, {"write a number in GiB"});
  EXPECT_EQ(to_yaml(read(text_with("\"80 GiB\"", "'400Gb/s'", "5")), ""), to_yaml(plain, ""));
  expect_refused([&] { read(text_with("\"80\"", "50", "5")); }, {"write a number in GiB"});
  expect_refused([&] { read(text_with("80", "400GB", "5")); },
                 {"units.yaml:4", "links.network.bandwidth = 400GB is not a number; links.network.bandwidth is in GB/s", "`GB` is no unit of it",
                  "write a number with one of GB/s, Gb/s"});
  expect_refused([&] { read(text_with("80G", "50", "5")); }, {"device.memory is in GiB, and `G` is no unit of it", "GiB, GB, MB"});
  expect_refused([&] { read(text_with("much", "50", "5")); }, {"device.memory = much is not a number; write a number in GiB"});
  expect_refused([&] { read(text_with("80", "50", "5") + "cluster: {nodes: 2GB}\n"); }, {"cluster.nodes = 2GB is not an integer"});
}

TEST(planner, missing_cluster_key_error_names_unknown_keys) {
  const Folder folder;
  std::ofstream(folder / "wrong.yaml") << "gpu: {memory: 80}\ndevice: {memory: 80, bandwidth: 3}\nlinks: {node: {bandwidth: 450}}\nwatts: 700\n";
  expect_refused([&] { read_cluster(folder / "wrong.yaml"); },
                 {"device.memory_bandwidth must be given", "wrong.yaml:1: unknown key `gpu.memory`; did you mean `device.memory`",
                  "wrong.yaml:2: unknown key `device.bandwidth`", "wrong.yaml:4: unknown key `watts`; did you mean `device.watts`?"});
}

// Data sheets state the rates of both directions of NVLink together, and those of sparse matrices.
TEST(planner, doubled_rates_of_data_sheets_are_reported) {
  Cluster c = read_cluster(fs::path(GYR_SOURCE_DIR) / "input/clusters/h100.yaml");
  const auto notes = [&] {
    std::string text;
    for (const std::string& note : doubtful_links(c, 8)) text += note + "\n";
    for (const std::string& note : doubtful_devices(c)) text += note + "\n";
    return text;
  };
  EXPECT_EQ(notes(), "");
  c.node.bandwidth = 900e9;
  EXPECT_NE(notes().find("links.node.bandwidth is 900 GB/s, which NVLink 4 (H100, H200) reaches in both directions together; write 450"),
            std::string::npos)
      << notes();
  c.node.bandwidth = 450e9, c.device.bf16 = 1979e12;
  EXPECT_NE(notes().find("device.bf16 is 1979 TFLOP/s, which H100 and H200 SXM reaches with sparsity; write 989.5, the dense rate"),
            std::string::npos)
      << notes();
  c.device.bf16 = 989e12, c.per_node_assumed = true;
  EXPECT_NE(notes().find("does not set device.per_node: the plan assumes one device per node"), std::string::npos) << notes();
}

// The units that texts may have are those that the keys are declared with.
TEST(planner, units_of_cluster_keys_are_those_declared) {
  int units = 0;
  std::string section;
  std::istringstream lines(cluster_keys());
  for (std::string line; std::getline(lines, line);) {
    if (const auto colon = line.find(':'); !line.empty() && line[0] != ' ' && colon != line.npos && line.find("  ") == line.npos)
      section = line.substr(0, colon);
    const std::string key = line.substr(0, line.find(' ')), unit(unit_of_key(section + "." + key));
    if (unit.empty()) continue;
    EXPECT_NE(line.find(" " + unit + " "), std::string::npos) << section << ": " << line;
    ++units;
  }
  EXPECT_EQ(units, 19) << cluster_keys();
}

TEST(planner, assumed_links_between_nodes_are_named) {
  const Folder folder;
  const auto notes = [&](const std::string& links, int ranks, const std::string& more = "") {
    std::ofstream(folder / "links.yaml") << "device: {per_node: 8, memory: 80, memory_bandwidth: 3350, bf16: 989, fp32: 67, fp64: 67}\n"
                                         << more << "links: " << links;
    return doubtful_links(read_cluster(folder / "links.yaml"), ranks);
  };
  const std::string node = "node: {latency: 5, bandwidth: 450}";
  EXPECT_TRUE(notes("{" + node + "}", 8).empty()) << "one node";
  ASSERT_EQ(notes("{" + node + "}", 9).size(), 1u);
  for (const char* part : {"does not set links.network.bandwidth", "450 GB/s, 5 us", "as fast as those of links.node", "set links.network.bandwidth"})
    EXPECT_NE(notes("{" + node + "}", 9).front().find(part), std::string::npos) << notes("{" + node + "}", 9).front();
  EXPECT_EQ(notes("{" + node + ", network: {latency: 9}}", 9).size(), 1u) << "the bandwidth is missing";
  EXPECT_TRUE(notes("{" + node + ", network: {bandwidth: 50}}", 512).empty());
  const auto islands = notes("{" + node + ", network: {bandwidth: 50}}", 17, "cluster: {island_nodes: 2}\n");
  ASSERT_EQ(islands.size(), 1u);
  EXPECT_NE(islands.front().find("links.islands.bandwidth"), std::string::npos) << islands.front();
  EXPECT_TRUE(notes("{" + node + ", network: {bandwidth: 50}}", 16, "cluster: {island_nodes: 2}\n").empty());
  const auto fast = notes("{" + node + ", network: {bandwidth: 400}}", 16);
  ASSERT_EQ(fast.size(), 1u);
  EXPECT_NE(fast.front().find("400 GB/s per device, which is 3200 Gb/s; write 400Gb/s"), std::string::npos) << fast.front();
}

TEST(planner, doubtful_devices_are_named) {
  const Folder folder;
  const auto notes = [&](const std::string& memory_bandwidth, const std::string& bf16, const std::string& more) {
    std::ofstream(folder / "device.yaml") << fmt::format(
        "device: {{per_node: 8, memory: 80, memory_bandwidth: {}, bf16: {}, fp32: 67, fp64: 67{}}}\nlinks: {{node: {{latency: 5, bandwidth: "
        "450}}}}\n",
        memory_bandwidth, bf16, more);
    return fmt::format("{}", fmt::join(doubtful_devices(read_cluster(folder / "device.yaml")), "\n"));
  };
  EXPECT_EQ(notes("3350", "989", ", gpu: true, reserve: 4"), "");
  EXPECT_EQ(notes("100", "3", ""), "") << "a host";
  EXPECT_EQ(notes("3350", "989", ", gpu: true, reserve: 4, watts: 5600"),
            "the cluster file: device.watts is 5600 W, more than one device has; the value of a node is divided by device.per_node (8)");
  const auto expect = [&](const std::string& found, const char* part) { EXPECT_NE(found.find(part), std::string::npos) << found; };
  expect(notes("3.35", "989", ", gpu: true, reserve: 4"), "device.memory_bandwidth of the cluster file is 3.35 GB/s, which no device has");
  expect(notes("3350", "989000", ", gpu: true, reserve: 4"), "device.bf16 of the cluster file is 989000 TFLOP/s, which no device has");
  expect(notes("3350", "989", ", reserve: 4"), "device.gpu is not true in the cluster file");
  expect(notes("3350", "989", ", gpu: true"), "the cluster file does not set device.reserve");
}

TEST(planner, ideal_defaults_and_price_of_cluster_file) {
  const Folder folder;
  const auto read = [&](const std::string& more) {
    std::ofstream(folder / "c.yaml") << "device: {memory: 80, memory_bandwidth: 3350, bf16: 989, fp32: 67, fp64: 67, price: 2.5, currency: EUR}\n"
                                     << more;
    return read_cluster(folder / "c.yaml");
  };
  const Cluster c = read("links: {node: {bandwidth: 450}}\nfit: {products: 0.6, fused: 0.6, memory: 0.5}\n");
  EXPECT_EQ(defaults_text(c),
            "links.beside = true, links.node.latency = 0, links.node.sums = 1, fit.links = 1, fit.step = 0: ideal values, not measured, because the "
            "cluster file does not set them");
  EXPECT_EQ(defaults_text(read("links: {beside: true, node: {latency: 5, bandwidth: 450, sums: 0.9}}\nfit: {products: 0.6, fused: 0.6, memory: 0.5, "
                               "links: 1, step: 0}\n")),
            "");
  EXPECT_EQ(c.price(8), 20);
  std::ofstream(folder / "again.yaml") << to_yaml(c, "");
  const Cluster again = read_cluster(folder / "again.yaml");
  EXPECT_EQ(again.price(8), 20);
  EXPECT_EQ(again.device.currency, "EUR");
}

TEST(planner, values_of_a_node_are_named) {
  const Folder folder;
  const auto notes = [&](const char* memory, const char* bf16, const char* latency) {
    std::ofstream(folder / "node.yaml") << fmt::format(
        "device: {{per_node: 8, gpu: true, reserve: 4, memory: {}, memory_bandwidth: 3350, bf16: {}, fp32: 67, fp64: 67}}\nlinks:\n  node: "
        "{{latency: "
        "{}, bandwidth: 450}}\n  network: {{latency: 10, bandwidth: 50}}\n",
        memory, bf16, latency);
    return fmt::format("{}", fmt::join(doubtful_devices(read_cluster(folder / "node.yaml")), "\n"));
  };
  EXPECT_EQ(notes("80", "989", "5"), "");
  EXPECT_NE(notes("640GB", "989", "5").find("device.memory is 596.046 GiB, more than one device has"), std::string::npos);
  EXPECT_NE(notes("80", "7.9PFLOP/s", "5").find("device.bf16 is 7900 TFLOP/s, more than one device has"), std::string::npos);
  EXPECT_NE(notes("80", "989", "5ms").find("links.node.latency is 5000 us, which no link has"), std::string::npos);
  EXPECT_NE(notes("80", "989", "5e-6").find("links.node.latency is 5e-06 us, which no link has"), std::string::npos);
}

// Each rank finds its own position at its rank in the communicator, and all members list the same ranks.
TEST(planner, communicator_ranks_match_the_grid) {
  Dice dice(seed_of_run());
  int seen = 0;
  for (int i = 0; i < 30; ++i) {
    const Drawn d = draw(dice);
    for (int position = 0; position < d.layout.ranks(); ++position) {
      Grid grid = Grid::dry_run(d.layout, position);
      grid.visit([&](Communicator& c) {
        const std::vector<int> ranks = ranks_of(d.layout, position, c.name());
        ASSERT_EQ(int(ranks.size()), c.size()) << c.name() << " " << d.layout.text();
        EXPECT_EQ(ranks[std::size_t(c.rank())], position) << c.name();
        if (c.size() == 1) return;  // a communicator of one rank, such as `self`, has no other members
        for (const int other : ranks) EXPECT_EQ(ranks_of(d.layout, other, c.name()), ranks) << c.name();
        ++seen;
      });
    }
  }
  EXPECT_GT(seen, 100);
}

TEST(planner, large_transfers_follow_the_ring_formula) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 100; ++i) {
    Cluster c = random_cluster(dice);
    const int n = dice.between(2, 9);
    const GroupPlacement here{n, 1, 1, n};
    const double bytes = 1e12, bandwidth = c.node.bandwidth * c.fit.links, ring = bytes * (n - 1) / n / bandwidth;
    const auto seconds = [&](Operation op, double b) { return seconds_of(op, {1, Index(b)}, here, c); };
    EXPECT_NEAR(seconds(Operation::all_reduce, bytes) / (2 * ring / c.node.sums), 1, 1e-3);
    EXPECT_NEAR(seconds(Operation::reduce_scatter, bytes) / (ring / c.node.sums), 1, 1e-3);
    EXPECT_NEAR(seconds(Operation::all_gather, bytes / n) / ring, 1, 1e-3);
    EXPECT_NEAR(seconds(Operation::all_to_all, bytes) / ring, 1, 1e-3);
    EXPECT_NEAR(seconds(Operation::send, bytes) / (bytes / bandwidth), 1, 1e-3);
    EXPECT_DOUBLE_EQ(seconds(Operation::send, 0), c.node.latency);
    EXPECT_LE(seconds(Operation::all_reduce, 0), 2 * (n - 1) * c.node.latency * (1 + 1e-12));
    EXPECT_EQ(seconds(Operation::receive, bytes), 0);
    EXPECT_EQ(seconds_of(Operation::all_reduce, {0, 0}, here, c), 0);
    EXPECT_DOUBLE_EQ(seconds_of(Operation::all_reduce, {5, 50}, here, c), 5 * seconds_of(Operation::all_reduce, {1, 10}, here, c));
    // Between nodes with one rank each, only the network matters. With k ranks per node, k adapters carry the traffic.
    const int k = dice.between(1, 4);
    c.node.bandwidth = 1e15;
    const GroupPlacement separate{2 * k, 2, 1, k};
    EXPECT_NEAR(seconds_of(Operation::all_reduce, {1, Index(bytes)}, separate, c) /
                    (2 * bytes * (2 * k - 1) / (2 * k) / (c.network.bandwidth * c.network.sums * k * c.fit.links)),
                1, 1e-3);
    EXPECT_NEAR(seconds_of(Operation::all_to_all, {1, Index(bytes)}, separate, c) / (bytes / 2 / (c.network.bandwidth * c.fit.links)), 1, 1e-3);
  }
}

// The copies of a layer overlap with the computation of another layer. A task of one layer hides only one copy.
TEST(planner, host_copies_overlap_as_many_parts_as_copies) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 100; ++i) {
    Cluster c = random_cluster(dice);
    const Index parts = dice.between(1, 9), calls = dice.between(0, 9);
    for (const bool overlaps : {false, true}) {
      c.host.overlaps = overlaps;
      const double each = 1.0 / double(parts);  // seconds of a part
      double hiding = 0;
      for (Index part = 0; part < parts && overlaps; ++part) hiding += part < calls ? each : 0;
      EXPECT_NEAR(compute_hiding_copies(1, calls, parts, c), hiding, 1e-12) << calls << " copies, " << parts << " parts";
    }
  }
}

// If only passes over memory cost time, the seconds of the tasks and of the rest of a step equal all bytes of the plan.
TEST(planner, tasks_and_rest_add_up_to_the_step) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 60; ++i) {
    const Drawn d = draw(dice);
    Cluster c;
    c.host.bandwidth = 1;  // host copies that are not overlapped
    c.device.fp64 = c.device.fp32 = c.device.bf16 = 1e300, c.device.memory_bandwidth = 1;
    c.node = c.network = c.islands = {0, 1e300, 1};
    const int position = dice.between(0, d.layout.ranks() - 1);
    EngineConfig config = d.config;
    config.micros = std::min(config.micros, 3);
    const RankPlan plan = plan_rank(config, d.layout, position);
    const int rank = d.layout.coordinate(position, Axis::pipeline);
    const Program program = compile(config.schedule, pipeline_shape(d.layout, config.micros), rank, plan.buckets);
    const RankCosts costs(CountedTasks({plan, program, config.precision}, c), d.layout, position, c);
    const TaskTimes times = costs.times_of(program);
    double sum = 0, full = 0;
    for (const double seconds : times.seconds) sum += seconds;
    for (const Work& w : plan.work)
      if (const std::string kernel = w.kernel; kernel != "attention_gemm" && kernel != "ssd_gemm") full += w.bytes;
    EXPECT_NEAR(sum / full, 1, 1e-9) << d.layout.text() << " micros " << config.micros << "\n" << to_text(program);
  }
}

// A full pipeline repeats itself from one group of micro-batches to the next. Extrapolating from some groups therefore
// equals simulating all.
TEST(planner, extrapolation_over_micro_batches_matches_full_simulation) {
  Dice dice(seed_of_run());
  int longer = 0;
  for (int i = 0; i < 60; ++i) {
    const Drawn d = draw(dice);
    const Cluster c = random_cluster(dice);
    if (c.nodes > 0 && d.layout.ranks() > c.devices()) continue;
    const StagePlans plans(d.config, d.layout);
    const std::vector<RankCosts> costs = plans.costs(c);
    std::vector<Program> programs;
    std::vector<TaskTimes> times;
    for (std::size_t rank = 0; rank < costs.size(); ++rank) {
      programs.push_back(compile(d.config.schedule, pipeline_shape(d.layout, d.config.micros), int(rank), costs[rank].buckets()));
      times.push_back(costs[rank].times_of(programs.back()));
    }
    const double walked = timeline(programs, times).makespan + c.fit.step, predicted = predict(plans, d.config, d.layout, c).seconds;
    EXPECT_NEAR(predicted / walked, 1, 5e-3) << d.layout.text() << ", " << d.config.micros << " micro-batches";
    longer += d.config.micros > 5 * d.layout.size(Axis::pipeline);
  }
  EXPECT_GT(longer, 10);
}

// The parts of a prediction add up to the total, and none is negative.
TEST(planner, prediction_is_the_sum_of_its_parts) {
  Dice dice(seed_of_run());
  int offloading = 0;
  for (int i = 0; i < 60; ++i) {
    const Drawn d = draw(dice);
    const Cluster c = random_cluster(dice);
    const Prediction p = predict(StagePlans(d.config, d.layout), d.config, d.layout, c);
    EXPECT_TRUE(d.config.offload.on || p.copies == 0);
    offloading += p.copies > 0;
    EXPECT_NEAR((p.compute + p.transfers + p.copies + p.messages + p.buckets + p.rest) / p.seconds, 1, 1e-9);
    for (const double part : {p.compute, p.transfers, p.copies, p.messages, p.buckets, p.rest}) EXPECT_GE(part, -1e-9 * p.seconds) << d.layout.text();
    Cluster faster = c;
    for (Link* link : {&faster.node, &faster.network, &faster.islands}) link->bandwidth *= 2, link->latency /= 2;
    faster.device.fp32 *= 2, faster.device.memory_bandwidth *= 2, faster.fit.step /= 2, faster.host.bandwidth *= 2;
    EXPECT_NEAR(predict(StagePlans(d.config, d.layout), d.config, d.layout, faster).seconds / p.seconds, 0.5, 1e-9) << "everything is twice as fast";
  }
  EXPECT_GT(offloading, 5);
}

// One rank with weights in two buckets. The first forward pass waits for the all-gathers bucket by bucket, and the
// reductions overlap with the rest of the last backward pass.
TEST(planner, gathers_and_reductions_overlap_with_available_computation) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 50; ++i) {
    const int micros = dice.between(1, 4);
    BucketPlan plan{{2}, {{1}, {0}}, {true, true}, false, Shard::optimizer};
    const Program program = compile(one_f_one_b, {1, 1, micros}, 0, plan);
    const double f = dice.real(0.1, 1), b = dice.real(0.1, 1), gather = f + dice.real(0, 1), sum = b + dice.real(0, 1), step = dice.real(0, 1);
    TaskTimes times{{}, plan};
    for (const Task& t : program.tasks)
      times.seconds.push_back(t.op == Op::forward    ? f * double(t.parts.size())
                              : t.op == Op::backward ? b * double(t.parts.size())
                              : t.op == Op::gather   ? gather
                              : t.op == Op::reduce   ? sum
                                                     : step);
    const Simulation s = timeline({program}, {times});
    EXPECT_NEAR(s.makespan, 2 * gather + f + (micros - 1) * 2 * f + micros * 2 * b + 2 * sum - b + step, 1e-9) << to_text(program);
    EXPECT_NEAR(s.busy[0], micros * 2 * (f + b) + step, 1e-9);
    EXPECT_NEAR(s.bucket_wait[0], 2 * gather - f + 2 * sum - b, 1e-9);
    times.overlaps = false;  // no overlap
    const Simulation single = timeline({program}, {times});
    EXPECT_NEAR(single.makespan, 2 * (gather + sum) + micros * 2 * (f + b) + step, 1e-9);
    EXPECT_NEAR(single.bucket_wait[0], 2 * (gather + sum), 1e-9);
  }
}

TEST(planner, one_micro_batch_crosses_the_pipeline_both_ways) {
  for (int p = 1; p <= 6; ++p) {
    std::vector<Program> programs;
    for (int rank = 0; rank < p; ++rank) programs.push_back(compile(one_f_one_b, {p, 1, 1}, rank));
    EXPECT_NEAR(simulate(programs, {1, 0.5, 0.25, 3}).makespan, p * 1.75 + 2 * (p - 1) * 3, 1e-12);
  }
}

// Bounds: the errors reached when the constants were fitted. For leave-one-out errors, see `make planner ARGS=--fit`.
TEST(planner, published_step_times_are_predicted_within_bounds) {
  struct Bound {
    double mean, worst;
  };
  const std::map<std::string, Bound> bounds{
      {"a100-selene", {0.025, 0.055}}, {"a100-selene-2022", {0.035, 0.085}}, {"ampere-megascale", {0.018, 0.035}}, {"h100", {0.025, 0.09}}};
  std::map<std::string, std::vector<double>> errors;
  for (const PublishedStep& step : published_steps()) {
    const std::string file = cluster_file(step.source), name = fs::path(file).stem();
    if (!bounds.contains(name)) continue;
    const Cluster cluster = read_cluster(file);
    errors[name].push_back(std::abs(error_of(PlannedStep(step, cluster), cluster)));
    EXPECT_LT(errors[name].back(), bounds.at(name).worst) << step.name();
  }
  for (const auto& [name, bound] : bounds) {
    ASSERT_GE(errors[name].size(), 8u);
    EXPECT_LT(std::accumulate(errors[name].begin(), errors[name].end(), 0.0) / double(errors[name].size()), bound.mean) << name;
  }
}

TEST(planner, profile_reads_back_and_interpolates_measured_points) {
  Dice dice(seed_of_run());
  Profile profile;
  const double power = dice.real(0.5, 1.5);
  const std::string precision(name_of(DType::f32));
  for (const double work : {1e3, 1e5, 1e6}) profile.add({"add", precision, work / 4, work * 3 / 4, 1e-9 * std::pow(work, power)});
  const auto seconds = [&](double work) { return profile.seconds_of({"add", work / 4, work * 3 / 4}, DType::f32); };
  for (const double work : {1e3, 1e4, 1e5, 3e5, 1e6}) EXPECT_NEAR(seconds(work) / (1e-9 * std::pow(work, power)), 1, 1e-9) << work;
  EXPECT_NEAR(seconds(1e7) / seconds(1e6), 10, 1e-9) << "the largest measurement's rate applies to larger work";
  EXPECT_EQ(profile.seconds_of({"add", 1, 1}, DType::bf16), 0);
  EXPECT_EQ(profile.seconds_of({"mul", 1, 1}, DType::f32), 0);
  EXPECT_EQ(Profile::parse(profile.text(), "it").text(), profile.text());
  for (const char* bad :
       {"", "kernel\n", "kernel precision flops bytes seconds\nadd fp32 1 2\n", "kernel precision flops bytes seconds\nadd fp32 1 2 -3\n"})
    try {
      Profile::parse(bad, "it");
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("it:"), std::string::npos) << e.what();
    }
}

}  // namespace
}  // namespace gyr::testing::planner_suite
