// SPDX-License-Identifier: BSD-3-Clause
// Policy training with the program: the demonstration deck learns from rewards, gives the same answers on any grid, resumes within an
// iteration, and refuses settings that contradict each other.
#include <gtest/gtest.h>

#include <random>

#include "regression/support/material.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::policy_training_suite {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

// Prompts of the demonstration: a digit and a colon, to be answered with the digit.
struct Digits {
  Folder folder;
  fs::path prefix = folder / "digits", deck = fs::path(GYR_SOURCE_DIR) / "input/policy-digits.yaml";
  Result built;

  Digits() {
    std::string lines;
    for (int digit = 0; digit < 10; ++digit) lines += Json{{"prompt", {digit, 10}}, {"target", digit}}.dump() + "\n";
    put_contents(folder / "digits.jsonl", lines);
    built = run({"data", "build", folder / "digits.jsonl", prefix, "--prompts"});
  }
  Result train(const fs::path& output, int ranks, const Words& more = {}) const {
    Words words{"train", deck, "data.prefixes=[" + prefix.string() + "]", "output.folder=" + output.string()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, {.ranks = ranks, .env = {{"OMP_NUM_THREADS", "1"}}});
  }
};

const Digits& digits() {
  static const Digits all;
  return all;
}

std::vector<Json> lines_of_kind(const fs::path& output, const char* kind) {
  std::vector<Json> found;
  for (const std::string& line : lines_of(contents(output / "metrics.jsonl")))
    if (const Json json = Json::parse(line); json.value("kind", "") == kind) found.push_back(json);
  return found;
}

// Settings of a short PPO run with all further models and several steps per iteration, of which checkpoints fall into the middle. `start`: a
// PPO run, whose critic serves as reward model.
Words short_run(const fs::path& start) {
  return {"train.precision=fp64",
          "rl.algorithm=ppo",
          "rl.advantage.truncated=bootstrap",
          "rl.critic.warmup_iterations=1",
          "rl.critic.lr_factor=2",
          "rl.dynamic_sampling=3",
          "rl.kl.where=reward",
          "rl.kl.target=3",
          "rl.kl.horizon=20",
          "models.critic.init_from=" + start.string(),
          "models.judge.init_from=" + (start / "critic").string(),
          "rl.rewards.judge.type=model",
          "rl.rewards.judge.model=judge",
          "rl.rewards.judge.weight=0.3",
          "rl.iterations=4",
          "rl.prompts=4",
          "rl.num_generations=4",
          "rl.epochs=2",
          "rl.minibatches=2",
          "train.micro_batch_size=1",
          "checkpoint.every=3",
          "checkpoint.keep=9",
          "rl.loss.ratio=sequence",
          "rl.loss.aggregate=sequence",
          "rl.kl.coefficient=0.05",
          "rl.loss.entropy_coefficient=0.01",
          "models.reference.init_from=" + start.string()};
}

// The run that short_run() starts from.
fs::path start_of_runs() {
  static const fs::path start = digits().folder / "start";
  static const Result r = digits().train(start, 1, {"rl.iterations=2", "train.precision=fp64", "rl.algorithm=ppo", "models.critic.init_from=\"\""});
  EXPECT_EQ(r.code, 0) << r.err;
  return start;
}

TEST(policy_training, demonstration_learns_to_repeat_the_digit) {
  ASSERT_EQ(digits().built.code, 0) << digits().built.err;
  const fs::path output = digits().folder / "learns";
  const Result r = digits().train(output, 1);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> iterations = lines_of_kind(output, "iteration");
  ASSERT_EQ(iterations.size(), 120u);
  double first = 0, last = 0;
  for (std::size_t i = 0; i < 10; ++i) first += iterations[i]["reward"].get<double>() / 10, last += iterations[110 + i]["reward"].get<double>() / 10;
  EXPECT_LT(first, 0.2);
  EXPECT_GT(last, 0.9);
  EXPECT_TRUE(fs::exists(output / "rollouts/iteration_00000119.h5"));
  EXPECT_NE(r.out.find("iteration 120/120 | reward"), std::string::npos) << r.out;
  const std::vector<Json> steps = lines_of_kind(output, "step");
  ASSERT_EQ(steps.size(), 120u);
  EXPECT_NEAR(steps.back()["ratio"].get<double>(), 1, 1e-12) << "an iteration of one step";
  EXPECT_FALSE(steps.back().contains("kl_k1")) << "there is no reference model";
  const Result exported = run({"export-hf", output / "checkpoints", digits().folder / "exported"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(fs::exists(digits().folder / "exported/model.safetensors"));
}

TEST(policy_training, answers_and_losses_are_equal_on_every_grid) {
  const fs::path start = start_of_runs();
  const auto course = [&](const char* name, int ranks, const Words& grid) {
    Words words = short_run(start);
    words.insert(words.end(), grid.begin(), grid.end());
    const Result r = digits().train(digits().folder / name, ranks, words);
    EXPECT_EQ(r.code, 0) << name << "\n" << r.err;
    std::vector<double> numbers;
    for (const Json& line : lines_of_kind(digits().folder / name, "iteration"))
      for (const char* key : {"reward", "log_prob", "explained_variance", "kl_coefficient"}) numbers.push_back(line[key]);
    for (const Json& line : lines_of_kind(digits().folder / name, "step"))
      for (const char* key : {"loss", "kl_k3", "critic_loss", "critic_norm", "ratio", "critic_clipped"}) numbers.push_back(line[key]);
    return numbers;
  };
  const std::vector<double> one = course("one", 1, {});
  ASSERT_EQ(one.size(), 4u * 4 + 6u * 16);
  for (const std::size_t step : {0, 4}) {  // the first steps of an iteration have not moved the models
    EXPECT_NEAR(one[16 + 6 * step + 4], 1, 1e-9) << "ratio of step " << step + 1;
    EXPECT_EQ(one[16 + 6 * step + 5], 0) << "clipped values of step " << step + 1;
  }
  const std::vector<std::pair<const char*, Words>> grids{{"tensor", {"parallel.tensor=2", "parallel.sequence=true", "models.critic.tensor=1"}},
                                                         {"context", {"parallel.context=2"}},
                                                         {"pipeline", {"parallel.pipeline=2", "models.critic.pipeline=1", "models.critic.tensor=2"}},
                                                         {"data", {"parallel.data=2", "parallel.shard=optimizer"}},
                                                         {"other rank", {"parallel.tensor=2", "rl.generate.ranks=1", "rl.generate.tensor=1"}},
                                                         {"other stages", {"parallel.shard=weights", "rl.generate.pipeline=2"}}};
  for (const auto& [name, grid] : grids) {
    const std::vector<double> many = course(name, 2, grid);
    ASSERT_EQ(many.size(), one.size()) << name;
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-11) << name << ", number " << i;
  }
}

// With expert parallelism and virtual stages, the weights of training cannot generate. A copy on another layout, or on some of
// the ranks, finds the answers of one rank.
TEST(policy_training, generation_on_its_own_layout_equals_one_rank) {
  const auto course = [&](int ranks, const Words& layout) {
    const fs::path output = digits().folder / "placed";
    Words words{"train.precision=fp64",           "rl.iterations=6",   "model.pattern=PEPE", "model.moe.experts=4",
                "model.moe.intermediate_size=32", "model.moe.top_k=2", "checkpoint.every=0", "--anew"};
    words.insert(words.end(), layout.begin(), layout.end());
    const Result r = digits().train(output, ranks, words);
    EXPECT_EQ(r.code, 0) << r.err;
    std::vector<double> numbers;
    for (const Json& line : lines_of_kind(output, "iteration"))
      for (const char* key : {"reward", "log_prob"}) numbers.push_back(line[key]);
    for (const Json& line : lines_of_kind(output, "step")) numbers.push_back(line["grad_norm"]);
    return numbers;
  };
  const std::vector<double> one = course(1, {});
  ASSERT_EQ(one.size(), 18u);
  const Words virtual_stages{"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.data=2",
                             "parallel.expert=2",   "rl.generate.pipeline=1",    "rl.generate.tensor=2"},
      some_ranks{"parallel.tensor=2", "parallel.data=2", "rl.generate.ranks=1-2", "rl.generate.pipeline=2", "rl.generate.tensor=1"};
  for (const Words& layout : {virtual_stages, some_ranks}) {
    const std::vector<double> many = course(4, layout);
    ASSERT_EQ(many.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-11) << layout[0] << ", number " << i;
  }
}

TEST(policy_training, run_resumes_within_an_iteration_bit_for_bit) {
  std::mt19937 random(seed_of_run());
  const fs::path start = start_of_runs(), whole = digits().folder / "whole", parts = digits().folder / "parts";
  ASSERT_EQ(digits().train(whole, 1, short_run(start)).code, 0);
  const int killed = 5 + int(random() % 10);  // steps 4 to 16 follow a checkpoint
  Words words = short_run(start);
  words.insert(words.end(), {"fault.kind=kill", fmt::format("fault.step={}", killed)});
  EXPECT_NE(digits().train(parts, 1, words).code, 0);
  Words again = short_run(start);
  again.push_back("--resume");
  Words other = again;
  other.push_back("rl.minibatches=1");
  const Result moved = digits().train(parts, 1, other);
  EXPECT_EQ(moved.code, int(Exit::config));
  EXPECT_NE(moved.err.find("rl.minibatches: the steps of"), std::string::npos) << moved.err;
  const Result r = digits().train(parts, 1, again);
  ASSERT_EQ(r.code, 0) << "killed before step " << killed << "\n" << r.err;
  for (const char* model : {"", "critic"}) {
    const Result same = run({"diff", whole / model / "checkpoints/step_00000016", parts / model / "checkpoints/step_00000016"});
    EXPECT_EQ(same.code, 0) << model << " killed before step " << killed << "\n" << same.out;
  }
}

// Numbers of an iteration and a step, to be compared between layouts.
std::vector<double> course_of(const fs::path& output) {
  std::vector<double> numbers;
  for (const Json& line : lines_of_kind(output, "iteration"))
    for (const char* key : {"reward", "log_prob", "correction", "version"}) numbers.push_back(line.value(key, -1.0));
  for (const Json& line : lines_of_kind(output, "step"))
    for (const char* key : {"loss", "grad_norm", "ratio"}) numbers.push_back(line[key]);
  return numbers;
}

// Settings of a run whose answers are written by the weights of the iteration before.
Words stale_run() {
  return {"train.precision=fp64", "rl.iterations=6",    "rl.prompts=4",      "rl.num_generations=4",    "rl.minibatches=2",
          "rl.staleness=1",       "checkpoint.every=3", "checkpoint.keep=9", "train.micro_batch_size=1"};
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(policy_training, separate_ranks_generate_the_answers_of_one_rank) {
  for (const char* staleness : {"0", "1"}) {
    const Words settings = with(stale_run(), {fmt::format("rl.staleness={}", staleness)});
    const fs::path one = digits().folder / "alone";
    const Result alone = digits().train(one, 1, with(settings, {"--anew"}));
    ASSERT_EQ(alone.code, 0) << alone.err;
    const std::vector<double> expected = course_of(one);
    ASSERT_EQ(expected.size(), 6u * 4 + 12 * 3);
    EXPECT_EQ(expected[3], 0) << "version of iteration 0";
    EXPECT_EQ(expected[7], staleness[0] == '0' ? 2 : 0) << "version of iteration 1";
    EXPECT_EQ(expected[11], staleness[0] == '0' ? 4 : 2) << "version of iteration 2";
    std::vector<std::pair<int, Words>> grids{
        {4, {"rl.generate.ranks=2-3", "rl.generate.tensor=1", "rl.generate.pipeline=2", "parallel.pipeline=1", "parallel.tensor=2"}}};
    if (staleness[0] == '1') grids.push_back({3, {"rl.generate.ranks=1", "parallel.data=2", "parallel.shard=weights"}});
    for (const auto& [ranks, grid] : grids) {
      const fs::path output = digits().folder / "separate";
      const Result r = digits().train(output, ranks, with(with(settings, grid), {"rl.generate.separate=true", "--anew"}));
      ASSERT_EQ(r.code, 0) << r.err;
      const std::vector<double> found = course_of(output);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], 1e-11) << ranks << " ranks, staleness " << staleness << ", number " << i;
    }
  }
}

// The measured calls of an iteration are the seconds of its steps.
TEST(policy_training, predicted_calls_are_logged_beside_measured) {
  const std::string cluster = std::string(GYR_SOURCE_DIR) + "/input/clusters/h100.yaml";
  const fs::path output = digits().folder / "predicted";
  const Words settings = with(short_run(start_of_runs()), {"rl.generate.pipeline=2", "rl.generate.tensor=1", "parallel.tensor=2"});
  const Result r = digits().train(output, 2, with(settings, {"parallel.cluster=" + cluster}));
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> found = lines_of_kind(output, "calls"), steps = lines_of_kind(output, "step");
  ASSERT_EQ(found.size(), 1u) << r.out;
  ASSERT_EQ(steps.size(), 16u);
  EXPECT_EQ(found[0]["iterations"], 2) << "all but the first and the last";
  double measured = 0, expected = 0, scored = 0;
  for (const char* call : {"generate", "score", "train", "move"}) {
    ASSERT_TRUE(found[0]["calls"].contains(call)) << found[0];
    const Json& seconds = found[0]["calls"][call];
    EXPECT_GT(double(seconds["predicted_seconds"]), 0) << call;
    EXPECT_GT(double(seconds["measured_seconds"]), 0) << call;
    measured += double(seconds["measured_seconds"]);
    if (call != std::string("train")) scored += double(seconds["measured_seconds"]);
    EXPECT_NE(r.out.find(std::string(call) + ": "), std::string::npos) << r.out;
  }
  for (std::size_t step = 4; step < 12; ++step) expected += double(steps[step]["seconds"]) / 2;
  EXPECT_NEAR(measured / expected, 1, 0.02);
  const std::vector<Json> iterations = lines_of_kind(output, "iteration");
  EXPECT_NEAR(scored, (double(iterations[1]["seconds"]) + double(iterations[2]["seconds"])) / 2, 1e-6 * scored) << "until the answers are scored";
  EXPECT_EQ(found[0]["calls"].size(), 4u);
}

TEST(policy_training, run_beyond_the_cluster_is_not_predicted) {
  const fs::path output = digits().folder / "unpredicted", cluster = digits().folder / "small.yaml";
  put_contents(cluster, "cluster: {name: small, nodes: 1}\ndevice: {per_node: 1, memory: 1, memory_bandwidth: 10, fp64: 1, fp32: 1}\n");
  const Result r = digits().train(output, 2, {"rl.iterations=3", "parallel.cluster=" + cluster.string()});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("note: the calls of an iteration are not predicted: "), std::string::npos) << r.out;
  EXPECT_TRUE(lines_of_kind(output, "calls").empty());
}

// The plan refuses what the run would: answers of many sequences together need more memory than training.
TEST(policy_training, plan_counts_ranks_that_only_generate) {
  const auto planned = [&](const Words& more) {
    return run(with({"plan", digits().deck, "-n", "2", "rl.generate.ranks=1", "rl.generate.separate=true", "train.seq_length=1200",
                     "rl.generate.max_new_tokens=1100", "train.micro_batch_size=1"},
                    more));
  };
  const Result r = planned({"memory.device_bytes=25000000"});
  EXPECT_EQ(r.code, int(Exit::config)) << r.out << r.err;
  EXPECT_NE(r.err.find("a rank that only generates (1) takes"), std::string::npos) << r.err;
  EXPECT_EQ(planned({"memory.device_bytes=25000000", "rl.generate.sequences_together=2"}).code, 0);
}

// Weights that do not change write the same answers in every iteration, however old they are.
TEST(policy_training, age_of_unchanged_weights_makes_no_difference) {
  const auto course = [&](const char* staleness) {
    const fs::path output = digits().folder / "unchanged";
    const Result r = digits().train(output, 1, with(stale_run(), {fmt::format("rl.staleness={}", staleness), "optimizer.lr=1e-300", "--anew"}));
    EXPECT_EQ(r.code, 0) << r.err;
    std::vector<double> numbers;
    for (const Json& line : lines_of_kind(output, "iteration"))
      for (const char* key : {"reward", "log_prob"}) numbers.push_back(line[key]);
    return numbers;
  };
  const std::vector<double> present = course("0");
  EXPECT_EQ(present.size(), 12u);
  EXPECT_EQ(course("1"), present);
}

// A run that is killed on a rank that trains or on one that generates goes on with the stored answers.
TEST(policy_training, separate_ranks_killed_resume_bit_for_bit) {
  std::mt19937 random(seed_of_run());
  const fs::path whole = digits().folder / "whole separate", parts = digits().folder / "parts separate";
  const Words settings = with(stale_run(), {"rl.generate.ranks=1", "rl.generate.separate=true"});
  ASSERT_EQ(digits().train(whole, 2, settings).code, 0);
  for (const int rank : {0, 1}) {
    const int killed = 4 + int(random() % 8);
    SCOPED_TRACE(fmt::format("rank {} killed before step {}", rank, killed));
    const Words fault{"--anew", "fault.kind=kill", fmt::format("fault.step={}", killed), fmt::format("fault.rank={}", rank)};
    EXPECT_NE(digits().train(parts, 2, with(settings, fault)).code, 0);
    const Result r = digits().train(parts, 2, with(settings, {"--resume"}));
    ASSERT_EQ(r.code, 0) << r.err;
    const Result same = run({"diff", whole / "checkpoints/step_00000012", parts / "checkpoints/step_00000012"});
    EXPECT_EQ(same.code, 0) << same.out;
  }
  fs::remove(parts / "rollouts/ahead_00000002.h5");
  for (const int step : {6, 9, 12}) fs::remove_all(parts / fmt::format("checkpoints/step_{:08}", step));
  const Result r = digits().train(parts, 2, with(settings, {"--resume"}));
  EXPECT_EQ(r.code, int(Exit::missing));
  EXPECT_NE(r.err.find("ahead_00000002.h5: does not exist"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("remove the checkpoints after step 2"), std::string::npos) << r.err;
}

// Ranks that wait for each other's work notice that it has stopped. Answers that take longer than the limit end no run.
TEST(policy_training, separate_ranks_detect_a_stopped_peer) {
  const fs::path output = digits().folder / "stopped";
  const Words settings =
      with(stale_run(), {"rl.generate.ranks=1", "rl.generate.separate=true", "watchdog.seconds=1", "watchdog.heartbeat=0.1", "--anew"});
  for (const int rank : {0, 1}) {
    const Words fault{"fault.kind=stop", "fault.step=5", fmt::format("fault.rank={}", rank)};
    const Result r = digits().train(output, 2, with(settings, fault));
    EXPECT_EQ(r.code, int(Exit::again)) << r.err;
    EXPECT_NE(r.err.find(fmt::format("rank {}", rank)), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("has written no heartbeat"), std::string::npos) << r.err;
  }
  const Words slow{"train.seq_length=1200", "rl.generate.max_new_tokens=1100", "rl.iterations=1", "rl.generate.sequences_together=1",
                   "train.micro_batch_size=1"};
  const Result r = digits().train(output, 2, with(settings, slow));
  EXPECT_EQ(r.code, 0) << r.err;
}

TEST(policy_training, missing_answers_of_an_iteration_are_named) {
  const fs::path start = start_of_runs(), output = digits().folder / "missing";
  Words words = short_run(start);
  words.insert(words.end(), {"fault.kind=kill", "fault.step=8"});
  EXPECT_NE(digits().train(output, 1, words).code, 0);
  fs::remove(output / "rollouts/iteration_00000001.h5");
  Words again = short_run(start);
  again.push_back("--resume");
  const Result r = digits().train(output, 1, again);
  EXPECT_EQ(r.code, int(Exit::missing));
  EXPECT_NE(r.err.find("iteration_00000001.h5: does not exist"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("remove the checkpoints after step 4"), std::string::npos) << r.err;
  ASSERT_EQ(digits().train(output, 1, {"rl.iterations=1", "--anew"}).code, 0);
  EXPECT_TRUE(fs::exists(output / "rollouts/iteration_00000000.h5"));
  int moved = 0;
  for (const auto& entry : fs::recursive_directory_iterator(output / "set_aside")) moved += entry.path().filename() == "iteration_00000000.h5";
  EXPECT_EQ(moved, 1) << "the answers of the run before are set aside with it";
}

TEST(policy_training, checkpoint_without_its_critic_is_passed_over) {
  const fs::path output = digits().folder / "lost";
  Words words = short_run(start_of_runs());
  words.insert(words.end(), {"fault.kind=kill", "fault.step=8"});
  EXPECT_NE(digits().train(output, 1, words).code, 0);
  fs::remove_all(output / "critic/checkpoints/step_00000006");
  Words again = short_run(start_of_runs());
  again.push_back("--resume");
  const Result r = digits().train(output, 1, again);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("needs the critic of its step"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("at step 3"), std::string::npos) << r.out;
}

TEST(policy_training, rollout_judges_a_model_alike_on_any_grid) {
  const Words words{"rollout",
                    digits().deck,
                    "--init-from",
                    start_of_runs(),
                    "--samples",
                    "3",
                    "data.prefixes=[" + digits().prefix.string() + "]",
                    "train.precision=fp64",
                    "models.judge.init_from=" + (start_of_runs() / "critic").string(),
                    "rl.rewards.judge.type=model",
                    "rl.rewards.judge.model=judge"};
  const Result one = run(words, {.env = {{"OMP_NUM_THREADS", "1"}}});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.err.find("30 answers to 10 prompts: 6.0 tokens"), std::string::npos) << one.err;
  const std::vector<std::string> lines = lines_of(one.out);
  ASSERT_EQ(lines.size(), 30u);
  Words many = words;
  many.push_back("parallel.tensor=2");
  const std::vector<std::string> again = lines_of(run(many, {.ranks = 2, .env = {{"OMP_NUM_THREADS", "1"}}}).out);
  ASSERT_EQ(again.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json a = Json::parse(lines[i]), b = Json::parse(again[i]);
    double digit = 0;
    for (const Json& token : a["answer"]) digit += token == a["prompt"][0];
    EXPECT_NEAR(a["rewards"]["digit"].get<double>(), digit / double(a["answer"].size()), 1e-12) << lines[i];
    EXPECT_NEAR(a["reward"].get<double>(), a["rewards"]["digit"].get<double>() + a["rewards"]["judge"].get<double>(), 1e-12);
    EXPECT_EQ(a["answer"], b["answer"]);
    EXPECT_NEAR(a["reward"].get<double>(), b["reward"].get<double>(), 1e-9);
  }
}

TEST(policy_training, report_writes_page_of_samples) {
  const fs::path output = digits().folder / "sampled", page = output / "page.html";
  ASSERT_EQ(digits().train(output, 1, {"rl.iterations=4"}).code, 0);
  const Result r = run({"report", output, "--samples", page, "--iterations", "3"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("wrote " + page.string() + " (3 iterations, ")) << r.out;
  const std::string html = contents(page);
  EXPECT_NE(html.find("token ids, because data.tokenizer of the deck is empty"), std::string::npos);
  EXPECT_NE(html.find("give a rule weight: 0 to detect reward hacking"), std::string::npos);
  EXPECT_EQ(html.find("https://"), std::string::npos);
  EXPECT_EQ(run({"report", output, "--iterations", "3"}).code, int(Exit::usage));
  const Result two = run({"report", output, output, "--samples", page});
  EXPECT_EQ(two.code, int(Exit::usage));
  EXPECT_NE(two.err.find("--samples describes one run, and 2 are given"), std::string::npos) << two.err;
}

TEST(policy_training, contradicting_settings_are_refused_by_name) {
  const std::vector<std::pair<Words, std::string>> wrong{
      {{"rl.num_generations=1"}, "this algorithm compares the answers to one prompt; set num_generations to 2 or more"},
      {{"rl.minibatches=3"}, "minibatches does not divide the 64 answers of an iteration"},
      {{"train.steps=1000"}, "the steps follow from rl.iterations x rl.epochs x rl.minibatches = 120"},
      {{"rl.kl.estimator=k1", "rl.kl.coefficient=0.1"}, "the gradient of k1 is zero on average; use k2 or k3 there"},
      {{"rl.kl.coefficient=0.1"}, "the KL divergence needs a reference model; name it in models.reference.init_from"},
      {{"model.dropout.residual=0.1"}, "old and new log-probabilities must be those of one function"},
      {{"train.eval_every=5"}, "policy training does not validate on texts"},
      {{"train.non_finite=rollback"}, "the same answers would be generated again"},
      {{"train.seq_length=6"}, "the longest prompt has 2 tokens and rl.generate.max_new_tokens is 6; set train.seq_length to 8 or more"},
      {{"rl.rewards.digit.field=digit"}, "line 1 of"},
      {{"data.weights=[1]"}, "prompts are drawn from all data.prefixes in turn"},
      {{"rl.generate.end_tokens=[16]"}, "rl.generate.end_tokens: 16 is no token of the model"},
      {{"rl.algorithm=rloo", "rl.advantage.scale=batch"}, "only grpo divides by a standard deviation"},
      {{"rl.algorithm=ppo"}, "it needs a critic; name its first weights, such as models.critic.init_from=DIR"},
      {{"rl.algorithm=ppo", "models.critic.init_from=\"\"", "models.critic.ranks=0"}, "models.critic.ranks = 0: a critic is trained by all 2 ranks"},
      {{"rl.rewards.judge.type=model", "rl.rewards.judge.model=judge"}, "the deck has no models.judge; name the folder of the reward model"},
      {{"rl.rewards.judge.type=model", "rl.rewards.judge.model=judge", "models.judge.init_from=\"\""}, "models.judge.init_from is empty"},
      {{"rl.rewards.judge.type=model", "rl.rewards.judge.model=critic"}, "models.critic is the critic of ppo, and no reward model"},
      {{"rl.critic.warmup_iterations=3"}, "only ppo has a critic"},
      {{"rl.staleness=1", "rl.dynamic_sampling=2"}, "the weights that wrote their answers have already changed"},
      {{"rl.generate.separate=true"}, "no rank would train"},
      {{"rl.overlong=soft"}, "overlong: soft needs an overlong_buffer of 1 to 6 tokens"},
      {{"rl.kl.target=1"}, "there is no divergence to adapt"},
      {{"train.objective=value"}, "which does not read section rl"},
      {{"rl.rewards.digit.type=exact"}, "data.tokenizer is empty, and rl.rewards.digit reads the text of an answer"},
      {{"train.objective=next_token"}, "train.objective is next_token, which does not read section rl; set that to policy"}};
  for (const auto& [words, message] : wrong) {
    const Result r = digits().train(digits().folder / "refused", words.back() == "models.critic.ranks=0" ? 2 : 1, words);
    EXPECT_TRUE(r.code == int(Exit::config) || r.code == int(Exit::data)) << words.front() << ": " << r.code;
    EXPECT_NE(r.err.find(message), std::string::npos) << words.front() << "\n" << r.err;
  }
}

}  // namespace
}  // namespace gyr::testing::policy_training_suite
