// SPDX-License-Identifier: BSD-3-Clause
// A run that is stopped and resumed must end with the bits of an undisturbed run: after a planned stop and after
// SIGKILL at any moment, on one rank and on grids, in fp32 and bf16. On another grid, losses agree up to rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <numbers>
#include <optional>
#include <random>

#include "regression/support/material.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::restart_suite {

namespace fs = std::filesystem;

namespace {

constexpr int steps = 10;

struct Case {
  const char* name;
  int ranks;
  Words settings;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const Case cases[] = {
    {"one_rank_fp32", 0, {"train.precision=fp32"}},
    {"one_rank_bf16", 0, {"train.precision=bf16"}},
    {"one_rank_ramped", 0, {"train.ramp=[\"0:4\",\"600:8\",\"1400:2\"]"}},  // the batch size of a step depends on the tokens consumed before
    {"data_x_tensor_fp32", 4, {"train.precision=fp32", "parallel.data=2", "parallel.tensor=2", "checkpoint.async=true", "checkpoint.read=broadcast"}},
    {"data_x_tensor_sharded_bf16", 4, {"train.precision=bf16", "parallel.data=2", "parallel.tensor=2", "parallel.shard=weights"}},
    {"data_x_pipeline_fp32", 4, {"train.precision=fp32", "parallel.data=2", "parallel.pipeline=2"}},
    {"data_x_pipeline_bf16",
     4,
     {"train.precision=bf16", "parallel.data=2", "parallel.pipeline=2", "parallel.schedule=zero_bubble", "checkpoint.async=true",
      "checkpoint.files=node"}},
    {"interleaved_fp32", 2, {"train.precision=fp32", "model.pattern=P x 5", "parallel.pipeline=2", "parallel.virtual_stages=2"}},
    {"one_rank_of_five_layers", 0, {"train.precision=fp32", "model.pattern=P x 5"}},
    {"balanced_context_x_mixers_apart_with_sequence_bf16",
     4,
     {"train.precision=bf16", "parallel.context=2", "parallel.tensor=2", "parallel.sequence=true", "parallel.context_mode=balanced",
      "parallel.mixer=apart", "train.micro_batch_size=1"}},
};

Words train(const Case& c, const fs::path& folder, int last, bool resume) {
  Words words{"train.steps=" + std::to_string(last),
              "optimizer.decay_steps=" + std::to_string(steps),
              "checkpoint.every=1",
              "checkpoint.keep=3",
              "train.eval_every=5",
              "train.eval_batches=1"};
  words.insert(words.end(), c.settings.begin(), c.settings.end());
  if (resume) words.push_back("--resume");
  return Material::get().train(folder, words);
}

// An undisturbed run of ten steps, made once for each case.
struct Uninterrupted {
  Folder folder;
  Result result;
};
const Uninterrupted& uninterrupted_of(const Case& c) {
  static std::map<std::string, Uninterrupted> runs;
  const auto [known, first] = runs.try_emplace(c.name);
  if (first) known->second.result = run(train(c, known->second.folder.path(), steps, false), {.ranks = c.ranks});
  return known->second;
}

}  // namespace

class restart : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(restart, restart, ::testing::ValuesIn(cases), [](const auto& info) { return std::string(info.param.name); });

TEST_P(restart, ten_steps_equal_five_plus_five_resumed) {
  Trials trials("run stopped and resumed, and same run repeated");
  const Options options{.ranks = GetParam().ranks};
  const Uninterrupted& full = uninterrupted_of(GetParam());
  const Folder parts, again;
  ASSERT_EQ(full.result.code, 0) << full.result.err;
  trials.attempt([&] {
    ASSERT_EQ(run(train(GetParam(), parts.path(), 5, false), options).code, 0);
    const Result second = run(train(GetParam(), parts.path(), 10, true), options);
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_NE(second.out.find("at step 5"), std::string::npos) << second.out;
    expect_bitwise_equal_runs(full.folder.path(), parts.path(), steps);
    const auto validations = metrics(parts.path(), "validation"), expected = metrics(full.folder.path(), "validation");
    ASSERT_EQ(validations.size(), 2u);  // the validation before the stop is not repeated
    ASSERT_EQ(expected.size(), 2u);
    for (const int i : {0, 1}) EXPECT_EQ(validations[i]["loss"], expected[i]["loss"]);
  });
  trials.attempt([&] {
    ASSERT_EQ(run(train(GetParam(), again.path(), 10, false), options).code, 0);
    expect_bitwise_equal_runs(full.folder.path(), again.path(), steps);
  });
}

// Each attempt is killed after a random delay that starts when a random step has been saved, possibly during the next
// save. The last attempt is not killed.
TEST_P(restart, run_killed_at_random_moments_ends_bitwise_equal) {
  const Case& c = GetParam();
  const Uninterrupted& full = uninterrupted_of(c);
  ASSERT_EQ(full.result.code, 0) << full.result.err;
  constexpr unsigned runs = 1;  // of each layout; kill_matrix has more
  int killed = 0, in_the_middle = 0;
  Trials trials("run killed at random moments and resumed until done");
  const auto trial = [&](unsigned seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Folder folder;
    int saved = 0;  // the kill is timed from the save of this step
    for (bool done = false; !done;) {
      saved += 1 + int(random() % 4);
      const double delay = full.result.seconds / steps * double(random() % 1000) / 1000;
      std::optional<std::chrono::steady_clock::time_point> seen;
      const auto kill_when = [&] {
        if (!seen && fs::exists(Material::checkpoint(folder.path(), saved))) seen = std::chrono::steady_clock::now();
        return seen && std::chrono::duration<double>(std::chrono::steady_clock::now() - *seen).count() > delay;
      };
      Options options{.ranks = c.ranks};
      if (saved < steps) options.kill_when = kill_when;
      const Result r = run(train(c, folder.path(), steps, true), options);
      if (r.out.find("resumed from") != std::string::npos) in_the_middle += 1;
      if (!r.killed) {
        ASSERT_EQ(r.code, 0) << r.out << r.err;
      }
      killed += r.killed;
      done = !r.killed;
    }
    expect_bitwise_equal_runs(full.folder.path(), folder.path(), steps);
  };
  const unsigned first = unsigned(seed_of_run());
  for (unsigned seed = first; seed < first + runs; ++seed) trials.attempt([&] { trial(seed); });
  EXPECT_GE(killed, int(runs));
  EXPECT_GE(in_the_middle, int(runs));
}

// One grid writes the checkpoint, and another grid resumes from it.
TEST(restart, resume_on_another_grid_agrees_up_to_rounding) {
  const Folder two_layers, five_layers;
  ASSERT_EQ(run(train(cases[0], two_layers.path(), steps, false)).code, 0);
  ASSERT_EQ(run(train(cases[8], five_layers.path(), steps, false)).code, 0);
  const Case from_to[][2] = {{cases[0], cases[3]}, {cases[5], cases[0]}, {cases[3], cases[5]}, {cases[7], cases[8]}, {cases[8], cases[7]}};
  for (const auto& [from, to] : from_to) {
    SCOPED_TRACE(std::string(from.name) + " to " + to.name);
    const bool two = std::string(from.name).find("five") == std::string::npos && std::string(to.name).find("five") == std::string::npos;
    const auto expected = losses((two ? two_layers : five_layers).path());
    const Folder folder;
    ASSERT_EQ(run(train(from, folder.path(), 5, false), {.ranks = from.ranks}).code, 0);
    const Result r = run(train(to, folder.path(), steps, true), {.ranks = to.ranks});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("at step 5"), std::string::npos) << r.out;
    const auto series = losses(folder.path());
    ASSERT_EQ(series.size(), expected.size());
    for (const auto& [step, loss] : expected) EXPECT_NEAR(series.at(step), loss, 1e-5 * std::abs(loss)) << step;
  }
}

// The checkpoint of an expert-parallel run is also checked, evaluated and used for generation by one process that holds
// all experts.
TEST(restart, expert_parallel_checkpoint_resumes_on_other_expert_layout) {
  const auto with = [](const fs::path& output, Words words, int ranks) {
    const Words model{"model.pattern=*EWE",
                      "model.window.size=5",
                      "model.moe.experts=4",
                      "model.moe.intermediate_size=8",
                      "model.moe.score=sigmoid",
                      "model.moe.bias=true",
                      "model.moe.bias_update_rate=0.01",
                      "train.global_batch_size=8"};
    words.insert(words.end(), model.begin(), model.end());
    return run(Material::get().train(output, words), {.ranks = ranks});
  };
  const Folder one, distributed;
  ASSERT_EQ(with(one.path(), {"train.steps=8"}, 0).code, 0);
  ASSERT_EQ(with(distributed.path(), {"train.steps=4", "parallel.expert=2", "parallel.shard=weights"}, 4).code, 0);
  const Result on = with(distributed.path(), {"--resume", "train.steps=8", "parallel.expert=4", "parallel.context=2"}, 4);
  ASSERT_EQ(on.code, 0) << on.err;
  const auto expected = losses(one.path()), series = losses(distributed.path());
  ASSERT_EQ(series.size(), expected.size());
  for (const auto& [step, loss] : expected) EXPECT_NEAR(series.at(step), loss, 1e-5 * std::abs(loss)) << step;
  const std::string checkpoint = Material::checkpoint(distributed.path(), 8).string();
  for (const Words& words : {Words{"eval", checkpoint, "--data", Material::get().prefix().string()},
                             Words{"generate", checkpoint, "--prompt", "the", "--tokens", "4"}, Words{"info", checkpoint, "--check"}}) {
    const Result r = run(words);
    EXPECT_EQ(r.code, 0) << words.front() << ": " << r.err;
  }
}

namespace {

// Files of the checkpoints in a folder, and the time of their last change.
std::map<std::string, fs::file_time_type> listing(const fs::path& folder) {
  std::map<std::string, fs::file_time_type> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().string().find("/checkpoints/") != std::string::npos) files[entry.path()] = entry.last_write_time();
  return files;
}

// Arguments of a run with this random seed.
Words of_seed(unsigned seed, const fs::path& folder, const Words& more) {
  Words words{"train.steps=" + std::to_string(steps), "checkpoint.every=2", fmt::format("train.seed={}", seed), fmt::format("data.seed={}", seed)};
  words.insert(words.end(), more.begin(), more.end());
  return Material::get().train(folder, words);
}

}  // namespace

// Runs with two seeds follow each other in one output folder. Each attempt is killed before a random step, possibly
// before the first save. The last run must end with the bits of its undisturbed run.
TEST(restart, resume_uses_only_checkpoints_of_its_own_run) {
  std::map<unsigned, std::unique_ptr<Folder>> undisturbed;
  for (unsigned seed = 1; seed <= 2; ++seed) {
    undisturbed[seed] = std::make_unique<Folder>();
    ASSERT_EQ(run(of_seed(seed, undisturbed[seed]->path(), {})).code, 0);
  }
  Trials trials("runs started, killed and resumed in one folder");
  const auto trial = [&](unsigned draw) {
    std::mt19937 random(draw);
    const Folder folder;
    unsigned seed = 0;
    std::string story = fmt::format("draw {}:", draw);
    for (int attempt = 0, attempts = 3 + int(random() % 3); attempt < attempts; ++attempt) {
      const unsigned other = 1 + random() % 2;
      const int what = attempt == 0 ? 0 : int(random() % 4), step = 1 + int(random() % steps);
      const Words kill{"fault.kind=kill", fmt::format("fault.step={}", step)};
      Words words;
      if (what <= 1) {  // a new run starts over
        seed = other, words = {"--anew"};
        story += fmt::format(" new run with seed {}, killed before step {};", seed, step);
      } else if (what == 2) {
        words = {"--resume"};
        story += fmt::format(" resumed, killed before step {};", step);
      } else {  // started by mistake without --resume or --anew
        const auto before = listing(folder.path());
        if (before.empty()) continue;
        story += " refused;";
        SCOPED_TRACE(story);
        const Result r = run(of_seed(other, folder.path(), {}));
        EXPECT_EQ(r.code, int(Exit::usage)) << r.out << r.err;
        for (const char* way : {"--resume", "--anew", "output.folder"}) EXPECT_NE(r.err.find(way), std::string::npos) << r.err;
        EXPECT_EQ(listing(folder.path()), before);
        continue;
      }
      words.insert(words.end(), kill.begin(), kill.end());
      SCOPED_TRACE(story);
      const Result r = run(of_seed(seed, folder.path(), words));
      EXPECT_TRUE(r.code == 137 || r.code == 0) << r.code << r.out << r.err;  // 0: the run ended before that step
    }
    SCOPED_TRACE(story);
    const Result last = run(of_seed(seed, folder.path(), {"--resume"}));
    ASSERT_EQ(last.code, 0) << last.out << last.err;
    expect_bitwise_equal_runs(undisturbed[seed]->path(), folder.path(), steps);
  };
  for (unsigned draw = 1; draw <= 4; ++draw) trials.attempt([&] { trial(draw); });
}

// Copies of another run's checkpoints lie in a run's folder. They are not resumed from, and they are not removed as old
// ones.
TEST(restart, checkpoints_of_another_run_are_ignored_and_kept) {
  const Folder mine, other;
  const Words few{"train.steps=3", "optimizer.decay_steps=6", "checkpoint.every=1", "checkpoint.keep=1"};
  const auto of_run = [&](const Folder& folder, const char* seed, const Words& more) {
    Words words = few;
    words.push_back(seed);
    words.insert(words.end(), more.begin(), more.end());
    return Material::get().train(folder.path(), words);
  };
  ASSERT_EQ(run(of_run(mine, "train.seed=1", {})).code, 0);
  ASSERT_EQ(run(of_run(other, "train.seed=2", {"train.steps=5", "checkpoint.keep=9"})).code, 0);
  for (const int step : {1, 2, 5})
    fs::copy(Material::checkpoint(other.path(), step), Material::checkpoint(mine.path(), step), fs::copy_options::recursive);
  const Result r = run(of_run(mine, "train.seed=1", {"train.steps=4", "--resume"}));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("at step 3"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("skipped checkpoint " + Material::checkpoint(mine.path(), 5).string() + ": belongs to run"), std::string::npos) << r.out;
  for (const int step : {1, 2, 5}) EXPECT_TRUE(fs::exists(Material::checkpoint(mine.path(), step))) << step;
  EXPECT_FALSE(fs::exists(Material::checkpoint(mine.path(), 3)));
  // Without a checkpoint of its own the run refuses to resume, and nothing is overwritten.
  fs::remove_all(Material::checkpoint(mine.path(), 4));
  const Result none = run(of_run(mine, "train.seed=1", {"--resume"}));
  EXPECT_EQ(none.code, int(Exit::data)) << none.out << none.err;
  EXPECT_NE(none.err.find("--anew"), std::string::npos) << none.err;
  EXPECT_EQ(run(of_run(mine, "train.seed=1", {"--resume", "--anew"})).code, int(Exit::usage));
}

// A branch in a folder of its own has the bits of the run that it leaves, killed and resumed or not; another schedule and
// other data are reported, another model is refused.
TEST(restart, branch_keeps_the_bits_of_its_run) {
  const Folder folder;
  const Words settings{"train.steps=8", "optimizer.decay_steps=8", "checkpoint.every=4", "checkpoint.keep=9"};
  const auto go = [&](const char* out, const Words& more) {
    Words words = settings;
    words.insert(words.end(), more.begin(), more.end());
    return run(Material::get().train(folder / out, words));
  };
  ASSERT_EQ(go("trunk", {}).code, 0);
  const std::string from = Material::checkpoint(folder / "trunk", 4);
  const Words branch{"--init-from", from, "train.branch=true"};
  const Result same = go("same", branch);
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_NE(same.out.find("branches off from " + from + " at step 4"), std::string::npos) << same.out;
  EXPECT_EQ(run({"diff", Material::checkpoint(folder / "trunk", 8), Material::checkpoint(folder / "same", 8)}).code, 0);
  Words killed = branch;
  killed.insert(killed.end(), {"train.steps=6", "checkpoint.every=1"});
  ASSERT_EQ(go("killed", killed).code, 0);
  const Result resumed = go("killed", {"--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("at step 6"), std::string::npos) << resumed.out;
  EXPECT_EQ(run({"diff", Material::checkpoint(folder / "trunk", 8), Material::checkpoint(folder / "killed", 8)}).code, 0);
  Words early = branch;
  early.insert(early.end(), {"fault.kind=kill", "fault.step=5"});
  EXPECT_NE(go("early", early).code, 0);
  ASSERT_FALSE(fs::exists(Material::checkpoint(folder / "early", 8)));
  const Result again = go("early", {"--resume"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("branches off from " + from), std::string::npos) << again.out;
  EXPECT_EQ(run({"diff", Material::checkpoint(folder / "trunk", 8), Material::checkpoint(folder / "early", 8)}).code, 0);
  Words other = branch;
  other.push_back("optimizer.lr=1e-5");
  const Result changed = go("changed", other);
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_NE(changed.out.find("optimizer.lr"), std::string::npos) << changed.out;
  EXPECT_NE(run({"diff", Material::checkpoint(folder / "trunk", 8), Material::checkpoint(folder / "changed", 8)}).code, 0);
  other.back() = "model.rms_norm_eps=1e-3";
  const Result refused = go("refused", other);
  EXPECT_EQ(refused.code, int(Exit::config)) << refused.err;
  EXPECT_NE(refused.err.find("model.rms_norm_eps"), std::string::npos) << refused.err;
  EXPECT_FALSE(fs::exists(folder / "refused/checkpoints"));
  EXPECT_NE(refused.err.find("take the old values back (model.rms_norm_eps="), std::string::npos) << refused.err;
  other.back() = "model.vocab_size=400";
  const Result larger = go("refused", other);
  EXPECT_EQ(larger.code, int(Exit::config)) << larger.err;
  for (const char* part : {"take the old values back (model.vocab_size=300)", "another output.folder (with --init-from"})
    EXPECT_NE(larger.err.find(part), std::string::npos) << larger.err;
  EXPECT_EQ(go("alone", {"train.branch=true"}).code, int(Exit::config));
}

// A branch of a run whose learning rate has decayed begins with the full rate unless the deck gives the parent's.
TEST(restart, branch_with_another_learning_rate_warns) {
  const Folder folder;
  const Words settings{"train.steps=8", "checkpoint.every=6", "optimizer.warmup_steps=1", "optimizer.lr=6e-3", "optimizer.min_lr=6e-4"};
  const auto go = [&](const char* out, const Words& more) {
    Words words = settings;
    words.insert(words.end(), more.begin(), more.end());
    const Result r = run(Material::get().train(folder / out, words));
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  };
  go("trunk", {"optimizer.schedule=cosine"});
  const Words cool{"--init-from", Material::checkpoint(folder / "trunk", 6), "train.branch=true", "optimizer.schedule=wsd", "optimizer.wsd_decay=2"};
  const std::string out = go("cool", cool);
  const double rate = 6e-4 + (6e-3 - 6e-4) / 2 * (1 + std::cos(std::numbers::pi * 5 / 7));  // of step 6, between steps 1 and 8
  const std::string remedy = fmt::format("set optimizer.lr={:.3g}, or branch off a run", rate);
  EXPECT_NE(out.find(fmt::format("warning: at step 6 the parent has the learning rate {:.3g}, and this branch has 0.006", rate)), std::string::npos)
      << out;
  EXPECT_NE(out.find(remedy), std::string::npos) << out;
  Words followed = cool;
  followed.push_back(fmt::format("optimizer.lr={:.3g}", rate));
  EXPECT_EQ(go("followed", followed).find("warning: at step"), std::string::npos) << "the remedy helps";
}

TEST(restart, branch_without_steps_left_is_refused) {
  const Folder folder;
  const std::string from = Material::get().trained();
  const int step = std::stoi(from.substr(from.rfind('_') + 1));
  for (const char* dry : {"", "--dry-run"}) {
    Words words = Material::get().train(folder / "out", {fmt::format("train.steps={}", step), "--init-from", from, "train.branch=true"});
    if (*dry) words.push_back(dry);
    const Result r = run(words);
    EXPECT_EQ(r.code, int(Exit::config)) << output_of(r);
    for (const std::string& part : {fmt::format("was saved after step {}", step), fmt::format("set train.steps above {}", step)})
      EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
    EXPECT_FALSE(fs::exists(folder / "out/checkpoints"));
  }
}

// Changed deck keys are listed. A change of what the model computes needs --accept-changes.
TEST(restart, run_without_steps_left_reports_it) {
  const Folder folder;
  const Material& material = Material::get();
  const auto go = [&](const Words& more) {
    const Result r = run(material.train(folder / "out", more));
    EXPECT_EQ(r.code, 0) << output_of(r);
    return r.out;
  };
  const auto expect = [](const std::string& out, const std::string& part) { EXPECT_NE(out.find(part), std::string::npos) << part << "\n" << out; };
  expect(go({"train.steps=0"}), "train.steps = 0: nothing is trained, and no checkpoint is saved");
  EXPECT_FALSE(fs::exists(folder / "out/checkpoints"));
  go({"train.steps=4"});
  const std::string limited = go({"train.steps=4", "--resume", "train.walltime=8"});
  expect(limited, "step 4 is done, and train.steps = 4: nothing is left to do");
  expect(limited, "time limit: 8 min 0 s (train.walltime)");
  EXPECT_EQ(json_in(folder / "out/status.json")["step"], 4);
  EXPECT_EQ(metrics(folder / "out", "end").back()["step"], 4);
  expect(go({"train.steps=2", "--resume"}), "step 4 is done, and train.steps = 2: nothing is left to do");
  const std::string out = go({"train.steps=5", "--resume", "--init-from", material.trained()});
  expect(out, "train.init_from = " + material.trained().string() + " is not read: the weights are those of step_00000004");
  go({"train.steps=6", "--resume", "checkpoint.at_end=false"});
  EXPECT_FALSE(fs::exists(Material::checkpoint(folder / "out", 6))) << "checkpoint.at_end = false";
}

TEST(restart, resume_lists_changed_deck_keys) {
  const Folder folder;
  const auto go = [&](int last, const Words& more) {
    Words words{fmt::format("train.steps={}", last), "optimizer.decay_steps=9", "checkpoint.every=1", "checkpoint.keep=1"};
    words.insert(words.end(), more.begin(), more.end());
    return run(Material::get().train(folder.path(), words));
  };
  ASSERT_EQ(go(2, {}).code, 0);
  const Result same = go(2, {"--resume"});
  EXPECT_EQ(same.out.find("changed since"), std::string::npos) << same.out;
  const Result layout = go(2, {"--resume", "checkpoint.every=2", "watchdog.seconds=99"});
  EXPECT_NE(layout.out.find("with the same results up to rounding: checkpoint.every, watchdog.seconds\n"), std::string::npos) << layout.out;
  EXPECT_EQ(layout.out.find("the deck has changed"), std::string::npos) << layout.out;
  const Result course = go(3, {"--resume", "optimizer.lr=0.02", "train.seq_length=16"});
  EXPECT_EQ(course.code, 0) << course.err;
  for (const char* line : {"key               old value  new value", "train.steps       2          3", "train.seq_length  32         16",
                           "optimizer.lr      0.01       0.02"})
    // Compares one line of the table at a time.
    EXPECT_NE(course.out.find(fmt::format("\n  {}\n", line)), std::string::npos) << line << "\n" << course.out;
  const Words other{"--resume", "optimizer.lr=0.02", "train.seq_length=16", "model.mamba.norm=norm_first", "model.rms_norm_eps=0.01"};
  const Result refused = go(4, other);
  EXPECT_EQ(refused.code, int(Exit::config)) << refused.out;
  for (const char* word : {"model.mamba.norm", "model.rms_norm_eps", "--accept-changes", "step_00000003"})
    EXPECT_NE(refused.err.find(word), std::string::npos) << refused.err;
  EXPECT_NE(refused.out.find("gate_first  norm_first  changes what the model computes"), std::string::npos) << refused.out;
  EXPECT_FALSE(fs::exists(Material::checkpoint(folder.path(), 4)));
  Words accepted = other;
  accepted.push_back("--accept-changes");
  EXPECT_EQ(go(4, accepted).code, 0);
  EXPECT_EQ(go(5, other).code, 0);  // the accepted deck is now the deck of the run
  const Result shape = go(6, {"--resume", "model.mlp.intermediate_size=32"});
  EXPECT_EQ(shape.code, int(Exit::config)) << shape.out;
  EXPECT_NE(shape.err.find("feed_forward"), std::string::npos) << shape.err;
}

namespace {

// Steps that have a checkpoint; each checkpoint must be intact.
std::vector<int> intact_steps(const fs::path& folder) {
  std::vector<int> list;
  for (int step = 1; step <= steps; ++step)
    if (const fs::path path = Material::checkpoint(folder, step); fs::exists(path)) {
      const Result r = run({"info", path, "--check"});
      EXPECT_EQ(r.code, 0) << path << r.err;
      if (r.code == 0) list.push_back(step);
    }
  return list;
}

bool unfinished(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints"))
    if (entry.path().extension() == ".tmp") return true;
  return false;
}

// Stages of a save on every rank, and stages of the commit that only rank 0 passes through.
constexpr const char* stage_trials = "rank killed at a stage of a save";
const Words stages_of_all{"begin", "copied", "shard", "written", "synced", "agreed"},
    stages_of_first{"index", "manifest", "renamed", "latest", "pruned"};

Case saving(bool async) { return {"", 4, {"parallel.data=2", "parallel.tensor=2", std::string("checkpoint.async=") + (async ? "true" : "false")}}; }

// A rank dies at a stage of the save of step 6. Earlier checkpoints stay intact, the new one is intact or absent, and
// the next attempt ends with the bits of an undisturbed run.
void die_at(const std::string& stage, int rank, bool async, const fs::path& five_steps, const fs::path& full) {
  SCOPED_TRACE(stage + " on rank " + std::to_string(rank) + (async ? ", asynchronously" : ""));
  const Folder folder;
  fs::copy(five_steps, folder.path(), fs::copy_options::recursive);
  const Result r =
      run(train(saving(async), folder.path(), 8, true), {.ranks = 4, .env = {{"GYR_FAULT_POINT", stage + ":" + std::to_string(rank) + ":6"}}});
  EXPECT_NE(r.code, 0) << "no rank died\n" << r.out;
  const auto saved = intact_steps(folder.path());
  const bool has_six = std::count(saved.begin(), saved.end(), 6) == 1;
  if (stage != "agreed") {  // after this stage, rank 0 may commit before it notices the death of the other rank
    EXPECT_EQ(has_six, stage == "renamed" || stage == "latest" || stage == "pruned");
  }
  EXPECT_EQ(std::count(saved.begin(), saved.end(), 5), 1);
  const Result next = run(train(saving(async), folder.path(), steps, true), {.ranks = 4});
  ASSERT_EQ(next.code, 0) << next.out << next.err;
  EXPECT_NE(next.out.find(has_six ? "at step 6" : "at step 5"), std::string::npos) << next.out;
  EXPECT_FALSE(unfinished(folder.path()));
  expect_bitwise_equal_runs(full, folder.path(), steps);
}

struct Reference {
  Reference() {
    EXPECT_EQ(run(train(saving(false), full.path(), steps, false), {.ranks = 4}).code, 0);
    EXPECT_EQ(run(train(saving(false), five_steps.path(), 5, false), {.ranks = 4}).code, 0);
  }
  Folder full, five_steps;
};

// Kills attempts after a random delay that starts with a save, until `kills` have succeeded. The last attempt is not
// killed.
void kill_in_saves(int kills, unsigned seed) {
  const Reference reference;
  std::mt19937 random(seed);
  const Folder folder;
  int killed = 0, in_a_save = 0;
  Trials trials("run killed during a save");
  for (int attempt = 0; killed < kills; ++attempt) {
    SCOPED_TRACE("attempt " + std::to_string(attempt));
    ASSERT_LT(attempt, 3 * kills);
    const auto before = intact_steps(folder.path());
    const int newest = before.empty() ? 0 : before.back();
    if (newest >= steps - 2) {  // removes newer checkpoints, so that steps are left for further kills
      for (const int step : before)
        if (step > 1) fs::remove_all(Material::checkpoint(folder.path(), step));
      continue;
    }
    const fs::path begun = Material::checkpoint(folder.path(), newest + 1) += ".tmp";
    const double delay = double(random() % 40) / 1000;
    std::optional<std::chrono::steady_clock::time_point> seen;
    const auto kill_when = [&] {
      if (!seen && (fs::exists(begun) || fs::exists(Material::checkpoint(folder.path(), newest + 1)))) seen = std::chrono::steady_clock::now();
      return seen && std::chrono::duration<double>(std::chrono::steady_clock::now() - *seen).count() > delay;
    };
    trials.attempt([&] {
      const Result r = run(train(saving(attempt % 2), folder.path(), steps, true), {.ranks = 4, .kill_when = kill_when});
      killed += r.killed;
      in_a_save += fs::exists(begun);
      const auto after = intact_steps(folder.path());
      EXPECT_TRUE(after.empty() ? before.empty() : after.back() >= newest);
    });
  }
  const Result last = run(train(saving(false), folder.path(), steps, true), {.ranks = 4});
  ASSERT_EQ(last.code, 0) << last.out << last.err;
  EXPECT_FALSE(unfinished(folder.path()));
  expect_bitwise_equal_runs(reference.full.path(), folder.path(), steps);
  EXPECT_GE(in_a_save, kills / 5);
  std::printf("%d kills, %d of them with a save unfinished\n", killed, in_a_save);
}

}  // namespace

TEST(restart, rank_death_in_a_save_keeps_older_checkpoints) {
  const Reference reference;
  Trials trials(stage_trials);
  const auto die = [&](const std::string& stage, int rank, bool async) {
    trials.attempt([&] { die_at(stage, rank, async, reference.five_steps.path(), reference.full.path()); });
  };
  die("begin", 3, false);
  die("shard", 1, true);
  die("synced", 2, false);
  die("manifest", 0, true);
  die("renamed", 0, false);
}

TEST(restart, run_killed_in_ten_saves_ends_bitwise_equal) { kill_in_saves(10, 1); }

// Takes minutes: `ctest -L slow`.
TEST(kill_matrix, rank_death_at_every_stage_of_a_save) {
  const Reference reference;
  Trials trials(stage_trials);
  for (const bool async : {false, true})
    for (int rank = 0; rank < 4; ++rank) {
      Words stages = stages_of_all;
      if (rank == 0) stages.insert(stages.end(), stages_of_first.begin(), stages_of_first.end());
      for (const std::string& stage : stages) trials.attempt([&] { die_at(stage, rank, async, reference.five_steps.path(), reference.full.path()); });
    }
}
TEST(kill_matrix, run_killed_at_fifty_random_moments_in_saves) { kill_in_saves(50, 2); }

}  // namespace gyr::testing::restart_suite
