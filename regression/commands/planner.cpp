// SPDX-License-Identifier: BSD-3-Clause
// Tests of `gyrfalcon plan` with a cluster description and a kernel profile, and of the automatic choice of the layout.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "regression/support/material.hpp"

namespace gyr::testing::planner_suite {

namespace {

const Material& material() { return Material::get(); }

const std::string clusters = std::string(GYR_SOURCE_DIR) + "/input/clusters/";

// The number that this pattern captures in the text; -1 if there is no match.
double number_in(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? std::stod(match[1]) : -1;
}

// The quantity whose value and unit (or prefix of a unit) this pattern captures, in seconds, bytes or units; -1 if there
// is no match.
double quantity_in(const std::string& text, const std::string& pattern) {
  static const std::map<std::string, double> sizes{{"us", 1e-6}, {"ms", 1e-3},     {"s", 1},         {"", 1},         {"k", 1e3},
                                                   {"M", 1e6},   {"G", 1e9},       {"T", 1e12},      {"P", 1e15},     {"E", 1e18},
                                                   {"B", 1},     {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? std::stod(match[1]) * sizes.at(match[2]) : -1;
}
const std::string step_time = R"(step +([0-9.]+) (us|ms|s);)";

TEST(planner, plan_with_a_cluster_predicts_step_time) {
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-34b.yaml";
  const Words asked{"plan",     deck,  "--ranks", "512", "parallel.tensor=4", "parallel.pipeline=8", "--cluster", clusters + "h100.yaml",
                    "--tokens", "1e12"};
  const Result r = run(asked);
  ASSERT_EQ(r.code, 0) << r.err;
  const double seconds = quantity_in(r.out, step_time), mfu = number_in(r.out, R"(MFU +([0-9.]+) %)"),
               days = number_in(r.out, R"(training +([0-9.e+-]+)(?: ± [0-9.e+-]+)? days)"),
               rate = quantity_in(r.out, R"(s; ([0-9.]+) ([kMG]?) ?tokens/s)");
  EXPECT_GT(seconds, 0) << r.out;
  EXPECT_GT(mfu, 5);
  EXPECT_LT(mfu, 100);
  EXPECT_NEAR(days * 86400 * rate / 1e12, 1, 1e-2);
  Words slower = asked;
  std::replace(slower.begin(), slower.end(), clusters + "h100.yaml", clusters + "a100-selene.yaml");
  EXPECT_GT(quantity_in(run(slower).out, step_time), 1.5 * seconds) << "an A100 is slower";
  EXPECT_EQ(run({"plan", deck, "--ranks", "64"}).out.find("predicted"), std::string::npos);
}

TEST(planner, plan_reports_price_and_ideal_defaults) {
  const Folder folder;
  put_contents(
      folder / "c.yaml",
      "device: {per_node: 8, gpu: true, reserve: 4, memory: 80, memory_bandwidth: 3350, bf16: 989, fp32: 67, fp64: 67, price: 2, currency: EUR}\n"
      "links: {node: {bandwidth: 450}, network: {bandwidth: 50}}\n");
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-7b.yaml";
  const Result r = run({"plan", deck, "--ranks", "512", "--cluster", folder / "c.yaml", "--tokens", "1e12"});
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string text = std::regex_replace(r.out, std::regex("\n +"), " ");
  EXPECT_TRUE(std::regex_search(text, std::regex("days for 1.00 T tokens \\(132 per parameter\\) in 953675 steps"))) << text;
  const double days = number_in(text, R"(training +([0-9.e+-]+) days)"), hours = quantity_in(text, R"(; ([0-9.]+) ([kM]) device hours: )");
  EXPECT_NEAR(hours / (days * 24 * 512), 1, 1e-2);
  EXPECT_NEAR(quantity_in(text, R"(device hours: ([0-9.]+) ([kM]) EUR at 2 per device hour)") / (2 * hours), 1, 1e-2);
  EXPECT_NE(text.find("defaults"), std::string::npos) << text;
  EXPECT_NE(text.find("links.node.latency = 0, links.node.sums = 1, fit.products = 1"), std::string::npos) << text;
  const auto tokens = r.out.find("\ntokens "), training = r.out.find("\ntraining ");
  EXPECT_EQ(r.out.find('\n', tokens + 1), training) << "one line below the other\n" << r.out;
}

// The stages between the first and the last communicate alike.
TEST(planner, equal_pipeline_stages_share_table_rows) {
  const Result r = run({"plan", std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-34b.yaml", "--ranks", "64"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(std::regex_search(r.out, std::regex("\n +1-[0-9]+  0-[0-9]+ +tensor "))) << r.out;
  EXPECT_FALSE(std::regex_search(r.out, std::regex("\n +2  0-[0-9]+ +tensor "))) << r.out;
}

TEST(planner, missing_data_are_reported_after_the_plan) {
  const Result r = run({"plan", std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-73m.yaml"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("parameters ")) << r.out;
  EXPECT_NE(r.out.find("\nnote: the deck names no training data yet; train needs data.prefixes=[PREFIX]\n", r.out.find("Kernels of a step")),
            std::string::npos)
      << r.out;
}

// The MFU must follow from the model FLOPs per step of the same plan, also for an encoder-decoder, whose encoder tokens
// are not counted in seq_length.
TEST(planner, mfu_equals_model_flops_over_peak_flops) {
  for (const char* name : {"t5-small", "bert-base", "falcon-h1-73m", "gpt2-124m"}) {
    const Result r = run({"plan", fmt::format("{}/input/{}.yaml", GYR_SOURCE_DIR, name), "--cluster", clusters + "h100.yaml"});
    ASSERT_EQ(r.code, 0) << r.err;
    const double seconds = quantity_in(r.out, step_time), peak = quantity_in(r.out, R"(MFU +[0-9.]+ % of ([0-9.]+) ([GTP])FLOP)");
    const double flops = quantity_in(r.out, R"(model FLOPs +([0-9.]+) ([kMGTPE]?)FLOP per step)"), mfu = number_in(r.out, R"(MFU +([0-9.]+) %)");
    EXPECT_NEAR(mfu, 100 * flops / (seconds * peak), 0.051 + 1e-3 * mfu) << name;
  }
}

TEST(planner, cluster_and_profile_files_are_validated) {
  const Folder folder;
  const std::string deck = material().deck();
  EXPECT_EQ(run({"plan", deck, "--profile", "x"}).code, int(Exit::usage));
  EXPECT_EQ(run({"plan", deck, "--tokens", "5"}).code, int(Exit::usage));
  EXPECT_EQ(run({"plan", deck, "--cluster", folder / "none.yaml"}).code, int(Exit::missing));
  std::string text = contents(clusters + "h100.yaml");
  const auto line_of = [&](const std::string& word) { return 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(text.find(word)), '\n'); };
  text.replace(text.find("  bf16:"), 7, "  bf61:");
  put_contents(folder / "misspelt.yaml", text);
  const Result misspelt = run({"plan", deck, "--cluster", folder / "misspelt.yaml"});
  EXPECT_EQ(misspelt.code, int(Exit::config));
  EXPECT_NE(misspelt.err.find(fmt::format("misspelt.yaml:{}", line_of("  bf61:"))), std::string::npos) << misspelt.err;
  EXPECT_NE(misspelt.err.find("bf16"), std::string::npos) << misspelt.err;
  EXPECT_EQ(misspelt.err.find("command line"), std::string::npos) << misspelt.err;
  put_contents(folder / "empty.yaml", "# nothing\n");
  const Result empty = run({"plan", deck, "--cluster", folder / "empty.yaml"});
  EXPECT_EQ(empty.code, int(Exit::config));
  EXPECT_NE(empty.err.find("a description of a cluster has"), std::string::npos) << empty.err;
  for (const char* islands : {"islands: {files: [none.yaml]}\n", "islands: {nodes: [1]}\n"}) {
    put_contents(folder / "islands.yaml", std::string(islands) + "links: {islands: {bandwidth: 1}}\n");
    const Result wrong = run({"plan", deck, "--cluster", folder / "islands.yaml"});
    EXPECT_NE(wrong.code, 0) << islands;
    EXPECT_NE(wrong.err.find("islands.yaml:1: islands."), std::string::npos) << wrong.err;
  }
  put_contents(folder / "small.yaml", std::regex_replace(contents(clusters + "h100.yaml"), std::regex("nodes: 0"), "nodes: 1"));
  const Result small = run({"plan", deck, "train.global_batch_size=16", "--ranks", "16", "--cluster", folder / "small.yaml"});
  EXPECT_EQ(small.code, int(Exit::config)) << small.out;
  EXPECT_NE(small.err.find("16 ranks do not fit on the 8 devices"), std::string::npos) << small.err;
  put_contents(folder / "profile", "kernel precision flops bytes seconds\nadd fp32 1 2 three\n");
  const Result profile = run({"plan", deck, "--cluster", clusters + "h100.yaml", "--profile", folder / "profile"});
  EXPECT_EQ(profile.code, int(Exit::config));
  EXPECT_NE(profile.err.find("profile:2"), std::string::npos) << profile.err;
  put_contents(folder / "profile", "kernel precision flops bytes seconds\n");
  EXPECT_EQ(run({"plan", deck, "--cluster", clusters + "h100.yaml", "--profile", folder / "profile"}).code, int(Exit::config));
}

// plan must read the files that probe and profile write on this machine, and predict a step time from them.
TEST(planner, plan_accepts_measured_cluster_and_kernel_profile) {
  const Folder folder;
  const std::string deck = material().deck();
  const Result probe = run({"probe", "--out", folder / "here.yaml"}, {.ranks = 2});
  ASSERT_EQ(probe.code, 0) << probe.err;
  EXPECT_NE(probe.out.find("per_node: 2"), std::string::npos) << probe.out;
  EXPECT_EQ(probe.out, contents(folder / "here.yaml"));
  const Result profile = run({"profile", deck, "--out", folder / "kernels", "parallel.tensor=2"}, {.ranks = 2});
  ASSERT_EQ(profile.code, 0) << profile.err;
  const std::string before = contents(folder / "here.yaml");
  const std::vector<std::vector<std::string>> again = {{"probe", "--out", folder / "here.yaml"},
                                                       {"profile", deck, "--out", folder / "here.yaml"},
                                                       {"plan", deck, "--cluster", clusters + "h100.yaml", "--html", folder / "here.yaml"}};
  for (const std::vector<std::string>& command : again) {
    const Result refused = run(command);
    EXPECT_EQ(refused.code, int(Exit::usage)) << refused.err;
    EXPECT_NE(refused.err.find("here.yaml: exists"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(contents(folder / "here.yaml"), before);
  const Result plan = run({"plan", deck, "--ranks", "2", "parallel.tensor=2", "--cluster", folder / "here.yaml", "--profile", folder / "kernels"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("measured kernel times"), std::string::npos) << plan.out;
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  EXPECT_NE(plan.out.find("Predicted on " + std::string(host) + " ("), std::string::npos) << plan.out;
  EXPECT_GT(quantity_in(plan.out, step_time), 0) << plan.out;
}

// Settings of an automatic layout search on H100 GPUs.
const Words automatic{"parallel.plan=auto", "parallel.cluster=" + clusters + "h100.yaml"};

std::string line_with(const std::string& text, const std::string& what) {
  for (const std::string& line : lines_of(text))
    if (line.find(what) != std::string::npos) return line;
  return "";
}

TEST(planner, best_layout_of_explain_equals_automatic_plan) {
  const std::string deck = material().deck(), cluster = clusters + "h100.yaml";
  const Result r = run({"plan", deck, "--ranks", "4", "--cluster", cluster, "--explain"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* part :
       {"pruned (lower bound above the tenth)", "model-parallel comm", "slower by", "Violates a rule of the deck", "Too slow", "cannot be"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  const auto layouts = [](const std::string& text) { return text.substr(text.find("The fastest")); };  // the lines before contain a time
  EXPECT_EQ(layouts(run({"plan", deck, "--ranks", "4", "--cluster", cluster, "--explain"}).out), layouts(r.out)) << "searched twice";
  Words first{"plan", deck, "--ranks", "4", "--cluster", cluster};
  std::string section;
  bool lines = false;
  for (const std::string& line : lines_of(r.out)) {
    if (lines && line.starts_with("  ")) first.push_back(section + std::regex_replace(line.substr(2), std::regex(": "), "="));
    else if (lines && line.ends_with(":")) section = line.substr(0, line.size() - 1) + ".";
    lines = lines || line.starts_with("Deck keys of the fastest layout");
  }
  ASSERT_GT(first.size(), 15u) << r.out;
  const Result plan = run(first);
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NEAR(1e3 * quantity_in(plan.out, step_time), number_in(r.out, R"(\n 1  .* (?:none|optimizer|gradients|weights) +([0-9.]+) )"), 0.06)
      << r.out << plan.out;
  Words by_itself{"plan", deck, "--ranks", "4", "--cluster", cluster, "parallel.plan=auto"};
  const Result found = run(by_itself);
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(line_with(found.out, "step  "), line_with(plan.out, "step  "));
  EXPECT_EQ(line_with(found.out, "grid"), line_with(plan.out, "grid"));
}

// The costs of a training run follow from the step time of each layout. The deck's own layout has a place, and every
// prediction an error bar with its evidence.
TEST(planner, explain_reports_costs_and_place_of_the_deck) {
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-34b.yaml";
  const Result r = run({"plan", deck, "--ranks", "64", "--cluster", clusters + "h100.yaml", "--explain", "--tokens", "1e12"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* part : {"The deck's own layout", "of them leave less than the reserve", "Reserve: 4 GiB of each device",
                           "Accuracy: ", "not judged on several GPUs with this program", "Save of a checkpoint: ", "Training of 1.00 T tokens"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  const std::string costs = r.out.substr(r.out.find("Training of 1.00 T tokens"));
  std::smatch first;
  ASSERT_TRUE(std::regex_search(costs, first, std::regex(R"(\n +1 +([0-9.e+]+) +([0-9.e+]+) ± [0-9.]+ +([0-9.e+]+))"))) << costs;
  const double rate = std::stod(first[1]), days = std::stod(first[2]), energy = std::stod(first[3]);
  EXPECT_NEAR(days * 86400 * rate / 1e12, 1, 1e-2) << "days have two digits of their error\n" << costs;
  EXPECT_NEAR(energy / (700 * 64 * (1e12 / rate) / 3.6e9), 1, 5e-3) << costs;
  EXPECT_EQ(run({"plan", material().deck(), "--cluster", clusters + "h100.yaml", "--explain"}).out.find("MWh"), std::string::npos);
}

// A host program plans memory for the described GPUs, and warns if it chooses a layout for devices that it does not have.
TEST(planner, plans_depend_on_the_described_devices) {
  const Folder folder;
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-0.5b.yaml", gpu = contents(clusters + "h100.yaml");
  put_contents(folder / "cpu.yaml", std::regex_replace(gpu, std::regex("gpu: true"), "gpu: false"));
  const auto bytes = [&](const std::string& cluster) {
    return number_in(run({"plan", deck, "--cluster", cluster}).out, R"(memory +([0-9.]+) GiB on)");
  };
  EXPECT_GT(bytes(clusters + "h100.yaml"), bytes(folder / "cpu.yaml") + 0.5) << "logits of 4096 tokens, 256 on a host";
  const Result r = run(material().train(folder / "run", {"parallel.plan=auto", "parallel.cluster=" + clusters + "h100.yaml", "train.steps=1"}));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("parallel.cluster describes GPUs (H100 80GB"), std::string::npos) << r.out;
}

// The run uses the layout that was found, records it in its checkpoints, has the losses of one rank, and keeps the
// layout after a resume.
TEST(planner, automatic_layout_trains_as_one_rank_does) {
  const Folder one, four;
  const Words common{"train.steps=22", "train.precision=fp32", "checkpoint.every=22", "optimizer.decay_steps=30"};
  Words words = common;
  ASSERT_EQ(run(material().train(one.path(), words), {.ranks = 1}).code, 0);
  words.insert(words.end(), automatic.begin(), automatic.end());
  const Result first = run(material().train(four.path(), words), {.ranks = 4});
  ASSERT_EQ(first.code, 0) << first.err << first.out;
  EXPECT_NE(first.out.find(", predicted "), std::string::npos) << first.out;
  ASSERT_EQ(metrics(four.path(), "prediction").size(), 1u);
  EXPECT_EQ(metrics(four.path(), "prediction")[0]["predicted_bytes"], metrics(four.path(), "prediction")[0]["memory_bytes"]);
  EXPECT_GT(double(metrics(four.path(), "prediction")[0]["predicted_seconds"]), 0);
  const auto expected = losses(one.path()), found = losses(four.path());
  ASSERT_EQ(found.size(), 22u);
  for (const auto& [step, loss] : expected) EXPECT_NEAR(found.at(step) / loss, 1, 1e-5) << "step " << step;
  const std::string deck = contents(four.path() / "deck.yaml");
  EXPECT_NE(deck.find("  plan: deck\n"), std::string::npos) << deck;
  const std::string data = line_with(deck, "  data: "), grid = line_with(first.out, "grid ");
  EXPECT_NE(grid.find(data.substr(8) + " data x"), std::string::npos) << grid << data;

  // With fixed keys the search would choose another layout. A resumed run keeps its layout unless --replan is given.
  Words more = words;
  more[0] = "train.steps=24";
  more.push_back("parallel.keep=[tensor, pipeline]");
  more.push_back("--resume");
  const Result again = run(material().train(four.path(), more), {.ranks = 4});
  ASSERT_EQ(again.code, 0) << again.err << again.out;
  EXPECT_NE(again.out.find("keeping the layout of step_00000022"), std::string::npos) << again.out;
  EXPECT_EQ(line_with(again.out, "grid "), grid);
  more[0] = "train.steps=25";
  more.push_back("--replan");
  const Result replanned = run(material().train(four.path(), more), {.ranks = 4});
  ASSERT_EQ(replanned.code, 0) << replanned.err << replanned.out;
  EXPECT_NE(replanned.out.find("predicted;"), std::string::npos) << replanned.out;
  // On another number of ranks the checkpoint's layout is impossible, so a new search is made.
  more.pop_back();
  more[0] = "train.steps=26";
  const Result fewer = run(material().train(four.path(), more), {.ranks = 2});
  ASSERT_EQ(fewer.code, 0) << fewer.err << fewer.out;
  EXPECT_NE(fewer.out.find("predicted;"), std::string::npos) << fewer.out;
}

// Automatic layout on two islands, the second with half the speed. Ranks are numbered in the order of the islands.
TEST(planner, automatic_layout_on_unequal_islands_equals_one_rank) {
  const Folder folder;
  for (const auto& [name, rate] : {std::pair{"fast.yaml", 2}, {"slow.yaml", 1}})
    put_contents(folder / name, fmt::format("device: {{per_node: 2, memory: 1, memory_bandwidth: {0}0, bf16: 0.{0}, fp32: 0.{0}, fp64: 0.{0}}}\n"
                                            "host: {{bandwidth: 10, beside: true}}\nlinks: {{node: {{bandwidth: 10}}, network: {{bandwidth: 1}}}}\n",
                                            rate));
  put_contents(folder / "both.yaml", "islands: {files: [fast.yaml, slow.yaml], nodes: [1, 1]}\nlinks: {islands: {latency: 1, bandwidth: 0.1}}\n");
  const Words common{"model.pattern=\"P x 6\"", "train.steps=4", "train.precision=fp32"};
  const auto train = [&](const char* output, int ranks, Words more) {
    more.insert(more.end(), common.begin(), common.end());
    return run(material().train(folder / output, more), {.ranks = ranks});
  };
  ASSERT_EQ(train("one", 1, {}).code, 0);
  const auto expected = losses(folder / "one");
  for (const char* policy : {"keep", "memo"}) {
    Words words{"parallel.plan=auto", "parallel.cluster=" + std::string(folder / "both.yaml"), fmt::format("activation.policy={}", policy)};
    if (std::string_view(policy) == "memo") words.push_back("activation.alpha=auto");
    const Result found = train(policy, 4, words);
    ASSERT_EQ(found.code, 0) << found.err << found.out;
    EXPECT_NE(found.out.find(", predicted "), std::string::npos) << found.out;
    const auto of_found = losses(folder / policy);
    ASSERT_EQ(of_found.size(), expected.size());
    for (const auto& [step, loss] : expected) EXPECT_NEAR(of_found.at(step) / loss, 1, 1e-5) << policy << ", step " << step;
    const std::string deck = contents(folder / policy / "deck.yaml");
    EXPECT_NE(line_with(deck, "  emulate: ").find(":2"), std::string::npos) << deck;
    EXPECT_EQ(line_with(deck, "  alpha: ").find("auto"), std::string::npos) << deck;
  }
}

// A run that does not fit while it keeps all activations is refused. With the suggested offload to host memory it fits,
// and computes the same losses.
TEST(planner, memory_limit_error_suggests_a_policy_that_fits) {
  const Folder folder;
  const Words shape{"model.pattern=\"P x 12\"", "train.steps=2", "train.precision=fp32"};
  const auto with = [&](const char* output, Words more) {
    more.insert(more.end(), shape.begin(), shape.end());
    return material().train(folder / output, more);
  };
  const auto bytes = [&](Words more) {
    Words plan{"plan", material().deck()};
    plan.insert(plan.end(), shape.begin(), shape.end());
    plan.insert(plan.end(), more.begin(), more.end());
    return quantity_in(run(plan).out, R"(memory +([0-9.]+) ([KMG]iB) on)");
  };
  const double kept = bytes({}), offloaded = bytes({"activation.policy=swap"});
  ASSERT_LT(offloaded, 0.95 * kept);
  const std::string limit = fmt::format("memory.device_bytes={:.0f}", (kept + offloaded) / 2);
  ASSERT_EQ(run(with("whole", {})).code, 0);
  const Result refused = run(with("refused", {limit}));
  EXPECT_EQ(refused.code, int(Exit::config)) << refused.out;
  EXPECT_NE(refused.err.find("rank 0 needs "), std::string::npos) << refused.err;
  const Result none = run(with("none", {"memory.device_bytes=1000000"}));
  EXPECT_NE(none.err.find("No setting of activation.* is enough; use a smaller micro-batch"), std::string::npos) << none.err;
  for (const char* part : {"memory.device_bytes", "policy: swap", "policy: memo, alpha: 0", "MiB"})
    EXPECT_NE(refused.err.find(part), std::string::npos) << part << " in " << refused.err;
  const Result passed = run(with("swapped", {limit, "activation.policy=swap"}));
  ASSERT_EQ(passed.code, 0) << passed.err;
  EXPECT_EQ(losses(folder / "swapped"), losses(folder / "whole"));
  Words longest{"plan", material().deck(), limit, "--longest"};
  longest.insert(longest.end(), shape.begin(), shape.end());
  const Result lengths = run(longest);
  EXPECT_EQ(lengths.code, 0) << lengths.err;
  EXPECT_GT(number_in(lengths.out, R"(policy: swap +([0-9]+) )"), number_in(lengths.out, R"(recompute: none +([0-9]+) )")) << lengths.out;
  EXPECT_EQ(run({"plan", material().deck(), "--longest"}).code, int(Exit::usage));
}

// The offload fraction (activation.alpha) that was found is written to the effective deck, and a resumed run keeps it.
TEST(planner, automatic_offload_fraction_stays_after_resume) {
  const Folder folder;
  const std::string cluster = folder / "here.yaml";
  const auto machine = [&](const char* bandwidth) {
    put_contents(cluster, "device: {memory: 1, memory_bandwidth: 10, bf16: 0.1, fp32: 0.1, fp64: 0.1}\nhost: {bandwidth: " + std::string(bandwidth) +
                              ", beside: true}\nlinks: {node: {bandwidth: 10}}\n");
  };
  machine("1000");
  const auto alpha_of_deck = [&] {
    const std::string deck = contents(folder / "run/deck.yaml");
    return line_with(deck.substr(deck.find("\nactivation:")), "  alpha: ");
  };
  const auto train = [&](Words more) {
    more.insert(more.end(), {"model.pattern=\"P x 6\"", "train.seq_length=128", "activation.policy=memo", "activation.alpha=auto",
                             "parallel.cluster=" + cluster});
    return run(material().train(folder / "run", more));
  };
  const Result first = train({"train.steps=4", "checkpoint.every=4"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("activation.alpha = auto, on"), std::string::npos) << first.out;
  const std::string alpha = alpha_of_deck();
  EXPECT_EQ(alpha.find("auto"), std::string::npos) << alpha;
  machine("1e-9");
  const Result again = train({"train.steps=6", "checkpoint.every=4", "--resume"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find(" of step_00000004; --replan searches again"), std::string::npos) << again.out;
  EXPECT_EQ(alpha_of_deck(), alpha);
  const Result found = train({"train.steps=8", "checkpoint.every=4", "--resume", "--replan"});
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_NE(alpha_of_deck(), alpha);
  // A checkpoint of a run without offload has no alpha to keep, so a new search is made.
  ASSERT_EQ(run(material().train(folder / "kept", {"model.pattern=\"P x 6\"", "train.steps=4", "checkpoint.every=4", "train.seq_length=128"})).code,
            0);
  const Result later = run(material().train(folder / "kept", {"model.pattern=\"P x 6\"", "train.steps=5", "train.seq_length=128", "--resume",
                                                              "activation.policy=memo", "activation.alpha=auto", "parallel.cluster=" + cluster}));
  ASSERT_EQ(later.code, 0) << later.err;
  EXPECT_NE(later.out.find("activation.alpha = auto, on"), std::string::npos) << later.out;
  const Result unknown = run(material().train(folder / "other", {"activation.policy=memo", "activation.alpha=auto"}));
  EXPECT_EQ(unknown.code, int(Exit::config));
  EXPECT_NE(unknown.err.find("parallel.cluster"), std::string::npos) << unknown.err;
}

// Each block's first matrices are sharded by outputs (column parallel), the last one by inputs (row parallel), and one
// all-reduce follows.
TEST(planner, explain_layout_lists_tensor_parallel_shards_and_collectives) {
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-0.5b.yaml";
  const Result r = run({"plan", deck, "--explain-layout", "parallel.tensor=2"});
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string mlp = r.out.substr(std::min(r.out.size(), r.out.find("P hybrid: feed forward")));
  EXPECT_TRUE(std::regex_search(mlp, std::regex(R"(gate and up +shared +units +by outputs)"))) << r.out;
  EXPECT_TRUE(std::regex_search(mlp, std::regex(R"(down +units +partial +by inputs)"))) << r.out;
  EXPECT_EQ(number_in(mlp, R"(all-reduce +partial +whole +([0-9]+))"), 2 * 1024 * 2 / 2) << "bf16 rows of 1024, in a ring of two";
  const Result rows = run({"plan", deck, "--explain-layout", "parallel.tensor=2", "parallel.sequence=true"});
  EXPECT_NE(rows.out.find("reduce-scatter"), std::string::npos) << rows.out;
  EXPECT_NE(run({"plan", deck, "--explain-layout", "parallel.tensor=3"}).out.find("A run rejects this number of ranks"), std::string::npos);
  EXPECT_EQ(run({"plan", deck, "--explain-layout"}).code, int(Exit::usage));
  EXPECT_EQ(run({"plan", deck, "--explain-layout", "--longest", "parallel.tensor=2"}).code, int(Exit::usage));
  EXPECT_EQ(run({"plan", deck, "--explain-layout", "--ranks", "2", "parallel.tensor=2"}).code, int(Exit::usage));
}

// Overrides of the fastest layout give the same plan as its deck keys, and the report says which layouts are equal within
// the error of the prediction.
TEST(planner, explain_prints_overrides_and_equal_layouts) {
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-0.5b.yaml", cluster = clusters + "h100.yaml";
  const Words asked{"plan", deck, "--ranks", "16", "--cluster", cluster, "train.global_batch_size=8", "train.seq_length=16384"};
  Words search = asked;
  search.push_back("--explain");
  const Result r = run(search);
  ASSERT_EQ(r.code, 0) << r.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(r.out, found, std::regex("Overrides of the fastest layout, after train DECK\n(parallel\\.data=[^\n]+)\n"))) << r.out;
  Words first = asked;
  std::istringstream words(std::regex_replace(found[1].str(), std::regex("'"), ""));
  for (std::string word; words >> word;) first.push_back(word);
  EXPECT_GT(first.size(), asked.size() + 12) << found[1];
  EXPECT_NE(found[1].str().find(" 'activation.recompute_types=[]'"), std::string::npos) << found[1];
  const Result plan = run(first);
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NEAR(1e3 * quantity_in(plan.out, step_time), number_in(r.out, R"(\n 1  .* (?:none|optimizer|gradients|weights) +([0-9.]+) )"), 0.6) << r.out;
  EXPECT_TRUE(std::regex_search(r.out, std::regex("Layouts 1 to [0-9]+ differ by less than [0-9.]+ ms \\([0-9.]+ %, the mean error for published "
                                                  "steps of shorter sequences\\): any of them")))
      << r.out;
  EXPECT_GT(r.out.find("±"), r.out.find("Accuracy: none: not judged on sequences of more than 4096 tokens")) << r.out;
  EXPECT_NE(r.out.find("train.global_batch_size = 8 allows at most 8 data-parallel ranks, so that 16 ranks need context"), std::string::npos)
      << r.out;
}

TEST(planner, token_ids_beyond_the_vocabulary_are_refused) {
  const Folder folder;
  for (const char* end : {".bin", ".idx"}) std::filesystem::copy(material().prefix().string() + end, (folder / "plain").string() + end);
  const std::string without = "data.prefixes=[" + (folder / "plain").string() + "]";
  for (const auto& [prefixes, sentence] :
       {std::pair{"train.seed=1", "was made with a tokenizer of 300 tokens"}, {without.c_str(), "is not in the vocabulary of 200 tokens"}}) {
    const Words changes{"model.vocab_size=200", "data.tokenizer=\"\"", prefixes};
    Words plan{"plan", material().deck()};
    plan.insert(plan.end(), changes.begin(), changes.end());
    const Result planned = run(plan), trained = run(material().train(folder / "out", changes));
    EXPECT_EQ(planned.code, int(Exit::data)) << planned.out;
    EXPECT_EQ(trained.code, int(Exit::data)) << trained.out;
    EXPECT_NE(planned.err.find(sentence), std::string::npos) << planned.err;
    EXPECT_NE(trained.err.find(sentence), std::string::npos) << trained.err;
  }
  EXPECT_EQ(run({"plan", material().deck(), "model.vocab_size=200", "data.prefixes=[none]", "data.tokenizer=\"\""}).code, 0)
      << "a plan needs no data";
}

TEST(planner, options_of_other_programs_name_ranks) {
  const std::string deck = material().deck();
  for (const char* option : {"--num-gpus", "--gpus", "--world-size"}) {
    const Result r = run({"plan", deck, option, "64"});
    EXPECT_EQ(r.code, int(Exit::usage));
    EXPECT_NE(r.err.find("did you mean `--ranks 64`?"), std::string::npos) << r.err;
  }
  EXPECT_NE(run({"plan", deck, "--nodes", "8"}).err.find("did you mean `--ranks`? It counts devices: nodes x devices per node"), std::string::npos);
  EXPECT_NE(run({"plan", deck, "--max-steps", "8"}).err.find("without dashes: it is called train.steps here"), std::string::npos);
  EXPECT_EQ(run({"eval", deck, "--num-gpus", "8"}).err.find("--ranks"), std::string::npos);
  for (const char* file : {"h100", "H100", "h10", "inputs/h100.yml"}) {
    const Result r = run({"plan", deck, "--cluster", file});
    EXPECT_EQ(r.code, int(Exit::missing));
    EXPECT_TRUE(std::regex_search(r.err, std::regex("did you mean [^ ]*input/clusters/h100.yaml\\?"))) << r.err;
  }
  EXPECT_NE(run({"plan", deck, "--cluster", "frontier.yaml"}).err.find("(a100-selene-2022, a100-selene, "), std::string::npos);
}

TEST(planner, reports_state_steps_grid_and_units) {
  const std::string deck = std::string(GYR_SOURCE_DIR) + "/input/falcon-h1-1.5b.yaml";
  const auto planned = [&](const Words& more) {
    Words words{"plan", deck, "--ranks", "8", "--cluster", clusters + "h100.yaml", "train.global_batch_size=64", "train.seq_length=2048"};
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  };
  const auto expect = [](const std::string& text, const std::string& pattern) {
    EXPECT_TRUE(std::regex_search(text, std::regex(pattern))) << pattern << "\n" << text;
  };
  const std::string plan = planned({"--tokens", "1e12"});
  expect(plan, "training +[0-9.]+ ± [0-9.]+ days for 1\\.00 T tokens \\([0-9]+ per parameter\\) in 7629395 steps at this rate ± 25 %;");
  expect(plan, "category +MiB +content");
  expect(plan, "[KM]iB per call +[KM]iB in total");
  expect(plan, "Kernels of a step on rank [0-9]+ \\(stage 0, tensor rank [0-9]+\\), which executes most FLOPs");
  EXPECT_FALSE(std::regex_search(plan, std::regex(" [0-9.]+ [KMG]iB +[0-9.]+ [KMG]iB "))) << "cells have no units of their own\n" << plan;
  expect(planned({"--longest"}), "\\([0-9]+ data x 1 pipeline x 2 tensor = 8 ranks, micro-batches of [0-9]+; lengths in steps of 256 tokens\\)");
  expect(planned({"parallel.pipeline=2"}), "ideal bubble +[0-9.]+ % of a step, by formula: equal stages");
  const std::string longer = planned({"train.seq_length=16384", "activation.recompute=full"});
  EXPECT_EQ(longer.find("±"), std::string::npos) << longer;
  expect(longer, "accuracy +none: not judged on sequences of more than 4096 tokens");
  const Folder folder;
  put_contents(folder / "dark.yaml", std::regex_replace(contents(clusters + "h100.yaml"), std::regex("\n  watts:[^\n]*"), ""));
  expect(run({"plan", deck, "--ranks", "8", "train.global_batch_size=64", "--cluster", folder / "dark.yaml"}).out,
         "energy unknown: the\\s+cluster file does\\s+not set device.watts");
  const Result grids = run({"plan", deck, "--ranks", "8", "train.global_batch_size=7"});
  expect(grids.err, "that work on 8 ranks, if they fit in memory: ");
}

TEST(planner, plan_begins_with_search_for_fastest_layout) {
  const Result r = run({"plan", material().deck(), "--ranks", "2", "--cluster", clusters + "h100.yaml", "data.split=\"4,1,0\"", "train.log_every=7"});
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<std::string> lines = lines_of(r.out);
  ASSERT_GT(lines.size(), 2U);
  EXPECT_TRUE(lines[0].starts_with("This is the layout of the deck")) << r.out;
  EXPECT_EQ(lines[1], fmt::format("  gyrfalcon plan {} 'data.split=\"4,1,0\"' train.log_every=7 -n 2 --cluster {}h100.yaml --explain",
                                  material().deck().string(), clusters));
  EXPECT_EQ(run({"plan", material().deck(), "--ranks", "2"}).out.find("This is the layout"), std::string::npos) << "no cluster is named";
}

TEST(planner, cluster_of_the_deck_is_planned) {
  const std::string named = run({"plan", material().deck(), "--ranks", "2", "--cluster", clusters + "h100.yaml"}).out;
  const std::string of_deck = run({"plan", material().deck(), "--ranks", "2", "parallel.cluster=" + clusters + "h100.yaml"}).out;
  EXPECT_EQ(named.substr(named.find("parameters")), of_deck.substr(of_deck.find("parameters")));
}

TEST(planner, tokens_without_their_unit_give_a_warning) {
  const auto planned = [](const char* tokens) {
    return run({"plan", GYR_SOURCE_DIR "/input/mixtral-8x7b.yaml", "-n", "64", "--cluster", clusters + "h100.yaml", "--tokens", tokens}).out;
  };
  const std::string few = planned("300"), many = planned("300B");
  EXPECT_NE(few.find("warning: --tokens 300 is less than a step reads"), std::string::npos) << few;
  EXPECT_EQ(many.find("warning: --tokens"), std::string::npos) << many;
  EXPECT_NE(many.find("; active: 12.9 G"), std::string::npos) << many;
}

TEST(planner, assumed_network_is_reported_on_several_nodes) {
  const Folder folder;
  const std::string deck = material().deck(), cluster = folder / "no-network.yaml";
  put_contents(cluster, std::regex_replace(contents(clusters + "h100.yaml"), std::regex("\n  network:[^\n]*"), ""));
  const auto said = [&](const char* ranks, const std::string& file, const Words& more) {
    Words words{"plan", deck, "train.global_batch_size=16", "--ranks", ranks, "--cluster", file};
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(words, {.env = {{"COLUMNS", "1000"}}});
    EXPECT_EQ(r.code, 0) << r.err;
    return std::regex_replace(r.out, std::regex("\\s+"), " ").find("links.network.bandwidth: the plan assumes") != std::string::npos;
  };
  EXPECT_TRUE(said("16", cluster, {}));
  EXPECT_TRUE(said("16", cluster, {"--explain"}));
  EXPECT_FALSE(said("8", cluster, {}));
  EXPECT_FALSE(said("16", clusters + "h100.yaml", {}));
}

// The plan is printed, then the exit code and a sentence about the largest part follow.
TEST(planner, plan_beyond_the_memory_names_its_largest_part) {
  const std::string deck = material().deck();
  const auto refused = [&](const Words& more, const std::string& sentence) {
    Words words{"plan", deck, "memory.device_bytes=100kB"};
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(words);
    EXPECT_EQ(r.code, int(Exit::config)) << r.err;
    EXPECT_NE(r.out.find("IT DOES NOT FIT"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("Memory of the rank that uses most"), std::string::npos) << r.out;
    EXPECT_NE(r.err.find("the plan does not fit in memory: a rank takes "), std::string::npos) << r.err;
    EXPECT_TRUE(std::regex_search(r.err, std::regex(sentence))) << r.err;
  };
  refused(
      {"train.micro_batch_size=8", "train.global_batch_size=8", "train.seq_length=512"},
      "The largest part is `activations` with [0-9.]+ [KM]iB; it becomes smaller with activation.recompute=full, a smaller train.micro_batch_size");
  const Words wide{"model.vocab_size=60000", "model.hidden_size=256",    "train.global_batch_size=1", "data.prefixes=[none]",
                   "data.tokenizer=\"\"",    "train.micro_batch_size=1", "train.seq_length=8",        "model.pattern=P"};
  const auto with = [&](Words words) { return words.insert(words.begin(), wide.begin(), wide.end()), words; };
  refused(with({}), "The largest part is `optimizer` with [0-9.]+ MiB; it becomes smaller with a larger parallel.tensor or parallel.pipeline");
  refused(with({"--ranks", "2", "train.global_batch_size=2"}),
          "`optimizer` with [0-9.]+ MiB; it becomes smaller with parallel.shard=optimizer \\(ZeRO-1\\), or a larger parallel.tensor");
  refused(with({"--ranks", "2", "train.global_batch_size=2", "--cluster", clusters + "h100.yaml"}), "parallel.shard=optimizer");
  refused(with({}), "\\. No layout of 1 rank fits: weights and optimizer states alone take [0-9.]+ MiB on each\\. Take at least [0-9]+ ranks");
  EXPECT_NE(run({"plan", "--help"}).out.find("exit code 78 if it does not fit in memory"), std::string::npos);
}

// A plan of policy training needs no weights: a deck gives the shape of the trained model, and of others.
TEST(planner, policy_is_planned_by_shape) {
  const std::string decks = std::string(GYR_SOURCE_DIR) + "/input/", shape = decks + "falcon-h1-1.5b.yaml";
  const auto planned = [&](const Words& more) {
    Words words{"plan", decks + "rlhf.yaml", "--init-from", shape, "-n", "8", "parallel.tensor=2", "rl.prompts=8", "rl.generate.max_new_tokens=8"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Result r = planned({});
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string parameters = R"(parameters +[0-9.]+ [MG] \(([0-9]+)\))";
  EXPECT_EQ(number_in(r.out, parameters), number_in(run({"plan", shape, "-n", "8"}).out, parameters)) << r.out;
  EXPECT_NE(r.out.find("models.judge.init_from is empty: planned in the shape of the trained model"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("models.critic.init_from is empty"), std::string::npos) << "a critic may begin with random weights";
  const std::string of_critic = R"(models\.critic +([0-9.]+) )";
  const Result deeper = planned({"models.critic.init_from=" + decks + "falcon-h1-1.5b-deep.yaml"});
  ASSERT_EQ(deeper.code, 0) << deeper.err;
  EXPECT_NE(number_in(deeper.out, of_critic), number_in(r.out, of_critic));
  const Result train = run({"train", decks + "rlhf.yaml", "--init-from", shape});
  EXPECT_EQ(train.code, int(Exit::config));
  EXPECT_NE(train.err.find("is a deck, which has no weights"), std::string::npos) << train.err;
  const Result without = run({"train", decks + "rlhf.yaml"});
  EXPECT_EQ(without.code, int(Exit::config));
  EXPECT_NE(without.err.find("models.reference.init_from is empty"), std::string::npos) << without.err;
}

TEST(planner, deck_of_a_shape_is_checked) {
  const Folder folder;
  const auto refused = [&](const std::string& shape, const std::string& expected) {
    const std::string deck = folder / "shape.yaml";
    put_contents(deck, shape);
    const Result r = run({"plan", std::string(GYR_SOURCE_DIR) + "/input/policy.yaml", "--init-from", deck});
    EXPECT_EQ(r.code, int(Exit::config)) << r.out;
    EXPECT_NE(r.err.find(expected), std::string::npos) << r.err;
  };
  refused("train: {iterations: 3}\n", "has no section model");
  refused("model: {num_layers: 2, hiden_size: 64}\n", "hiden_size");
}

TEST(planner, impossible_search_error_states_the_remedy) {
  const Folder folder;
  const std::string deck = material().deck();
  const Result machine = run({"plan", deck, "parallel.plan=auto", "--ranks", "2"});
  EXPECT_EQ(machine.code, int(Exit::config));
  EXPECT_NE(machine.err.find("parallel.cluster"), std::string::npos) << machine.err;
  const Result train = run(material().train(folder / "run", {"parallel.plan=auto"}), {.ranks = 2});
  EXPECT_EQ(train.code, int(Exit::config)) << train.out;
  EXPECT_EQ(train.err.find("probe"), train.err.rfind("probe")) << "said once: " << train.err;
  EXPECT_NE(train.err.find("probe"), std::string::npos) << train.err;
  EXPECT_EQ(run({"plan", deck, "--explain", "--ranks", "2"}).code, int(Exit::usage));
  EXPECT_EQ(run(material().train(folder / "run", {"parallel.plan=auto", "parallel.cluster=none.yaml"}), {.ranks = 2}).code, int(Exit::missing));
  put_contents(folder / "tiny.yaml", std::regex_replace(contents(clusters + "h100.yaml"), std::regex("memory: 80 "), "memory: 0.0001 "));
  const Result tiny = run({"plan", deck, "--explain", "--ranks", "2", "--cluster", folder / "tiny.yaml"});
  EXPECT_EQ(tiny.code, int(Exit::config)) << tiny.out;
  EXPECT_NE(tiny.err.find("too large"), std::string::npos) << tiny.err;
  const Result word = run({"plan", deck, "parallel.keep=[tensors]"});
  EXPECT_EQ(word.code, int(Exit::config));
  EXPECT_NE(word.err.find("did you mean `tensor`"), std::string::npos) << word.err;
}

}  // namespace

}  // namespace gyr::testing::planner_suite
