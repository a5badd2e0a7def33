// SPDX-License-Identifier: BSD-3-Clause
// Runs that receive a signal, produce NaN or Inf, or hang: they save if possible, report the reason, and end with the
// same bits after a resume.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "regression/support/faults.hpp"

namespace gyr::testing::survive_suite {

namespace fs = std::filesystem;

namespace {

Words train(const fs::path& folder, const Words& more) {
  Words words{"train.steps=10", "optimizer.decay_steps=10", "checkpoint.every=3", "watchdog.heartbeat=0.05"};
  words.insert(words.end(), more.begin(), more.end());
  return Material::get().train(folder, words);
}

TEST(survive, ten_signals_at_random_phases_of_a_run) {
  Trials trials("signal at a random phase of a run");
  for (unsigned seed = 0; seed < 10; ++seed) trials.attempt([&] { signal_trial(seed); });
}

TEST(survive, stop_file_ends_the_run) {
  const Folder folder;
  const auto stop = [&](int, const fs::path&) {
    if (losses(folder.path()).contains(2)) put_contents(folder / "STOP", "");
  };
  const Result r = run(train(folder.path(), {"train.steps=100000", "checkpoint.every=0"}), {.meanwhile = stop});
  EXPECT_EQ(r.code, 75) << output_of(r);
  EXPECT_NE(r.err.find("the file STOP"), std::string::npos) << output_of(r);
  EXPECT_EQ(json_in(folder / "status.json")["state"], "stopped");
}

// UCX, below MPI, has a SIGHUP handler of its own, which logs every message from then on.
TEST(survive, sighup_saves_and_stops_with_short_log) {
  const Folder folder;
  bool sent = false;
  const auto hang_up = [&](int pid, const fs::path&) {
    if (!sent && losses(folder.path()).contains(2)) sent = kill(pid, SIGHUP) == 0;
  };
  const Result r = run(train(folder.path(), {"train.steps=100000", "checkpoint.every=0"}), {.meanwhile = hang_up});
  EXPECT_EQ(r.code, 75) << output_of(r);
  EXPECT_NE(r.err.find("stopped by SIGHUP after step"), std::string::npos) << output_of(r);
  EXPECT_EQ((r.out + r.err).find("UCX"), std::string::npos) << output_of(r);
  EXPECT_FALSE(fs::is_empty(folder / "checkpoints"));
}

// Each fsync is delayed, so that the later signals arrive while the ranks save.
TEST(survive, repeated_interrupts_let_supervised_run_save) {
  const Folder folder;
  using Clock = std::chrono::steady_clock;
  int sent = 0;
  Clock::time_point last{};
  const auto interrupt = [&](int pid, const fs::path&) {
    if (sent == 3 || !losses(folder.path()).contains(2) || Clock::now() - last < std::chrono::milliseconds(150)) return;
    if (kill(pid, SIGINT) == 0) ++sent, last = Clock::now();
  };
  Words words = train(folder.path(), {"train.steps=100000", "checkpoint.every=0"});
  words[0] = "run";
  words.insert(words.end(), {"-n", "2"});
  const Result r = run(words, {.env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_SYNC_DELAY", "200"}}, .meanwhile = interrupt});
  EXPECT_EQ(sent, 3);
  EXPECT_EQ(r.code, 75) << output_of(r);
  EXPECT_TRUE(last_line_of(r.out).starts_with("RUN STOPPED 75")) << output_of(r);
  const auto line = r.out.find("SIGQUIT");
  EXPECT_NE(line, std::string::npos) << output_of(r);
  EXPECT_EQ(r.out.find("SIGQUIT", line + 1), std::string::npos) << output_of(r);
  for (const char* name : {"status.json", "supervisor.json"}) EXPECT_EQ(json_in(folder / name)["state"], "stopped") << name;
  EXPECT_FALSE(fs::exists(folder / "status.json.tmp"));
  EXPECT_FALSE(fs::is_empty(folder / "checkpoints"));
}

// The ranks print to pipes whose reader has been killed.
TEST(survive, killed_supervisor_lets_its_ranks_save) {
  const Folder folder;
  Words words = train(folder.path(), {"train.steps=100000", "checkpoint.every=0"});
  words[0] = "run";
  words.insert(words.end(), {"-n", "2"});
  const char* const script = R"(folder=$1; shift; "$@" & supervisor=$!
    until grep -q '"step":2,' "$folder/metrics.jsonl"; do sleep 0.02; done 2> /dev/null
    kill -KILL $supervisor
    for ((i = 0; i < 600; ++i)); do ! grep -q '"state": "stopped"' "$folder/status.json" || exit 0; sleep 0.05; done
    exit 1)";
  Words command{"/bin/bash", "-c", script, "bash", folder.path().string(), program()};
  command.insert(command.end(), words.begin(), words.end());
  const Result r = execute(command);
  EXPECT_EQ(r.code, 0) << output_of(r) << contents(folder / "status.json");
  EXPECT_TRUE(fs::exists(folder / "checkpoints") && !fs::is_empty(folder / "checkpoints"));
}

TEST(survive, ignored_sighup_does_not_stop_the_run) {
  const Folder folder;
  bool sent = false;
  const auto hang_up = [&](int pid, const fs::path&) {
    const auto done = losses(folder.path());
    if (!sent && done.contains(2)) sent = kill(pid, SIGHUP) == 0;
    if (sent && done.contains(6)) put_contents(folder / "STOP", "");
  };
  Words words{"/usr/bin/nohup", program()};
  for (const std::string& word : train(folder.path(), {"train.steps=100000", "checkpoint.every=0"})) words.push_back(word);
  const Result r = execute(words, {.meanwhile = hang_up});
  EXPECT_EQ(r.code, 75) << output_of(r);
  EXPECT_NE(r.err.find("stopped by the file STOP"), std::string::npos) << output_of(r);
  EXPECT_EQ((r.out + r.err).find("UCX"), std::string::npos) << output_of(r);
}

TEST(survive, run_saves_before_its_walltime_ends) {
  const Folder folder;
  const Result r =
      run(train(folder.path(), {"train.steps=1000000", "train.walltime=0:00:05", "checkpoint.every=0", "train.log_every=1000000"}), {.ranks = 2});
  EXPECT_EQ(r.code, 75) << output_of(r);
  EXPECT_NE(r.err.find("train.walltime"), std::string::npos) << output_of(r);
  EXPECT_NE(r.out.find("time limit: 5 s (train.walltime)"), std::string::npos) << output_of(r);
  EXPECT_LT(r.seconds, 6.5);  // 5 s plus the time to start and end the processes
  EXPECT_FALSE(fs::is_empty(folder / "checkpoints"));
}

// NaN in a gradient of one rank: all ranks must skip the same step, and their weights must stay equal.
void nan_step_is_skipped() {
  const Folder folder, clean;
  const Words grid{"parallel.data=2", "parallel.tensor=2", "train.check_replicas=1"};
  Words fault = grid;
  for (const char* word : {"train.non_finite=skip", "fault.kind=nan", "fault.rank=3", "fault.step=5"}) fault.push_back(word);
  ASSERT_EQ(run(train(clean.path(), grid), {.ranks = 4}).code, 0);
  const Result r = run(train(folder.path(), fault), {.ranks = 4});
  ASSERT_EQ(r.code, 0) << output_of(r);
  const auto skips = metrics(folder.path(), "skip"), steps = metrics(folder.path(), "step");
  ASSERT_EQ(skips.size(), 1u);
  EXPECT_EQ(skips[0]["step"], 5);
  EXPECT_NE(std::string(skips[0]["why"]).find("by rank 3 but not"), std::string::npos) << skips[0].dump();
  EXPECT_EQ(steps.back()["skipped"], 1);
  EXPECT_EQ(steps.back()["nans"], 1);
  EXPECT_EQ(steps.back()["consumed_samples"], 80);  // the skipped batch counts as consumed
  const auto expected = losses(clean.path()), series = losses(folder.path());
  for (int step = 1; step <= 5; ++step) EXPECT_EQ(series.at(step), expected.at(step)) << step;
  EXPECT_NE(series.at(6), expected.at(6));
}

TEST(survive, nan_gradient_step_is_skipped_by_all_ranks) {
  Trials trials("NaN gradient, step skipped");
  trials.attempt(nan_step_is_skipped);
}

TEST(survive, rollback_equals_clean_run_without_that_batch) {
  const auto trial = [](const std::string& step, const Options& options, const Words& more) {
    SCOPED_TRACE(step);
    const Folder folder, clean;
    const std::string skip = "data.skip=[\"" + std::to_string(8 * (std::stoi(step) - 1)) + ":8\"]";
    Words with{"parallel.data=2", "train.non_finite=rollback", "fault.kind=nan", "fault.rank=1", "fault.step=" + step},
        without{"parallel.data=2", skip};
    for (Words* words : {&with, &without}) words->insert(words->end(), more.begin(), more.end());
    ASSERT_EQ(run(train(clean.path(), without), {.ranks = 2}).code, 0);
    const Result r = run(train(folder.path(), with), options);
    ASSERT_EQ(r.code, 0) << output_of(r);
    EXPECT_EQ(metrics(folder.path(), "rollback").size(), 1u);
    const int saved = (std::stoi(step) - 1) / 3 * 3;
    EXPECT_EQ(metrics(folder.path(), "rollback")[0]["to"], saved);
    // After a checkpoint exists, the run must load it instead of starting over.
    EXPECT_EQ(r.out.find(fmt::format("at step {}", saved)) != std::string::npos, saved > 0) << r.out;
    expect_bitwise_equal_runs(clean.path(), folder.path(), 10);
  };
  Trials trials("NaN gradient, rolled back");
  for (const char* step : {"2", "5"}) trials.attempt([&] { trial(step, {.ranks = 2}, {}); });  // before the first checkpoint, and after it
  // Rollback to pretrained weights, before the first checkpoint.
  trials.attempt([&] { trial("2", {.ranks = 2}, {"train.init_from=" + Material::get().trained().string()}); });
  // Rollback to a checkpoint that is still being written asynchronously: each fsync is delayed by 100 ms, and the next
  // step is bad.
  trials.attempt([&] { trial("4", {.ranks = 2, .env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_SYNC_DELAY", "100"}}}, {"checkpoint.async=true"}); });
}

TEST(survive, persistent_nan_ends_the_run) {
  const Folder folder, other;
  const Result stop = run(train(folder.path(), {"parallel.data=2", "fault.kind=nan", "fault.step=5"}), {.ranks = 2});
  EXPECT_EQ(stop.code, 80) << output_of(stop);
  EXPECT_NE(stop.err.find("step 5"), std::string::npos) << output_of(stop);
  const Result skips = run(
      train(other.path(), {"optimizer.lr=1e30", "optimizer.warmup_steps=0", "optimizer.clip_grad=0", "train.non_finite=skip", "train.max_skips=3"}));
  EXPECT_EQ(skips.code, 80) << output_of(skips);
  EXPECT_NE(skips.err.find("train.max_skips"), std::string::npos) << output_of(skips);
}

// The last step is saved after its validation, which may take longer than the time that the job has left.
TEST(survive, signal_during_last_validation_saves_a_checkpoint) {
  const Folder folder;
  const auto once = [&, sent = false](int pid, const fs::path&) mutable {
    if (sent || !losses(folder.path()).contains(1)) return;
    sent = ::kill(pid, SIGTERM) == 0;
  };
  const Words long_one{"train.steps=1", "optimizer.decay_steps=1", "train.eval_every=1"};
  Words words = long_one;
  words.push_back("train.eval_batches=1000000");
  const Result r = run(train(folder.path(), words), {.meanwhile = once});
  EXPECT_EQ(r.code, 0) << output_of(r);
  EXPECT_NE(r.out.find("the last validation is left to --resume"), std::string::npos) << output_of(r);
  EXPECT_TRUE(fs::exists(Material::checkpoint(folder.path(), 1)));
  EXPECT_TRUE(metrics(folder.path(), "validation").empty());
  Words again = long_one;
  again.insert(again.end(), {"train.eval_batches=1", "--resume"});
  EXPECT_EQ(run(train(folder.path(), again)).code, 0);
  EXPECT_EQ(metrics(folder.path(), "validation").size(), 1u);
}

// If the last update makes the weights NaN or Inf, no later step detects it. The validation does.
TEST(survive, weights_with_nan_validation_loss_are_not_saved) {
  const Folder folder;
  const Result r =
      run(train(folder.path(), {"train.steps=1", "optimizer.lr=1e37", "optimizer.warmup_steps=0", "train.eval_every=1", "train.eval_batches=1"}));
  EXPECT_EQ(r.code, 80) << output_of(r);
  EXPECT_NE(r.err.find("validation loss"), std::string::npos) << output_of(r);
  EXPECT_FALSE(fs::exists(Material::checkpoint(folder.path(), 1)));
}

// Weights that are suddenly scaled by 4 raise the loss, but not to infinity. The run rolls back and continues as if
// nothing had happened. The losses that define a spike may come from an earlier attempt.
void spike(bool right_after_a_resume) {
  const Folder folder, clean;
  const Words settings{"train.steps=40", "optimizer.decay_steps=40", "checkpoint.every=10"};
  Words guarded = settings, skipping = settings;
  for (const char* word : {"train.spike=1.2", "train.non_finite=rollback", "fault.kind=scale:4", "fault.step=36"}) guarded.push_back(word);
  const int saved = right_after_a_resume ? 35 : 30;
  skipping.push_back("data.skip=[\"280:8\"]");
  ASSERT_EQ(run(train(clean.path(), skipping)).code, 0);
  if (right_after_a_resume) {
    Words first = guarded;
    first.push_back("train.steps=35");
    ASSERT_EQ(run(train(folder.path(), first)).code, 0);
    guarded.push_back("--resume");
  }
  const Result r = run(train(folder.path(), guarded));
  ASSERT_EQ(r.code, 0) << output_of(r);
  ASSERT_EQ(metrics(folder.path(), "rollback").size(), 1u) << output_of(r);
  const auto rollback = metrics(folder.path(), "rollback")[0];
  EXPECT_EQ(rollback["to"], saved);
  EXPECT_NE(rollback["why"].get<std::string>().find("train.spike"), std::string::npos) << rollback;  // not because of NaN or Inf
  expect_bitwise_equal_runs(clean.path(), folder.path(), 40);
}

TEST(survive, loss_spike_is_rolled_back) {
  Trials trials("loss spike, rolled back");
  for (const bool right_after_a_resume : {false, true}) trials.attempt([&] { spike(right_after_a_resume); });
}

// mpiexec ends the job when a rank dies. A rank that is stopped or in an endless loop must be detected by the watchdog.
TEST(survive, watchdog_ends_hanging_job_and_names_rank) {
  for (const char* kind : {"stop", "hang"}) {
    SCOPED_TRACE(kind);
    const Folder folder;
    const Result r = run(train(folder.path(), {"parallel.data=2", "parallel.tensor=2", "watchdog.seconds=1", "fault.rank=2", "fault.step=5",
                                               std::string("fault.kind=") + kind}),
                         {.ranks = 4});
    EXPECT_EQ(r.code, 75) << output_of(r);
    EXPECT_NE(r.err.find("cause: rank 2"), std::string::npos) << output_of(r);
    EXPECT_NE(r.err.find("waiting in all_"), std::string::npos) << output_of(r);
    EXPECT_LT(r.seconds, 1 + 5 + 5);
    const auto status = json_in(folder / "status.json");
    EXPECT_EQ(status["state"], "hung");
    EXPECT_EQ(status["rank"], 2);
    if (std::string(kind) == "hang") {
      EXPECT_TRUE(fs::exists(folder / "backtrace.00002.txt"));
    }
    EXPECT_EQ(run({"ps", folder.path()}).code, 0);
  }
}

// The script requeues the job only if the run's last line is RUN STOPPED 75. With a launcher exit code of 0, the last
// line of the log decides.
TEST(survive, slurm_script_requeues_only_on_exit_code_75) {
  struct Case {
    int srun;
    const char* last_line;
    int script;
    bool requeued;
  };
  for (const Case& c : {Case{75, "RUN STOPPED 75", 0, true},
                        {0, "RUN OK", 0, false},
                        {80, "RUN FAILED 80", 80, false},
                        {0, "RUN STOPPED 75", 0, true},
                        {0, "step 7/9", 70, false}}) {
    SCOPED_TRACE(fmt::format("{}, {}", c.srun, c.last_line));
    const Folder folder;
    const auto program = [&](const char* name, const std::string& text) {
      folder.write(name, "#!/bin/sh\n" + text);
      fs::permissions(folder / name, fs::perms::owner_all);
    };
    program("srun", fmt::format("echo \"$@\" > {}; echo {}; exit {}", (folder / "started").string(), c.last_line, c.srun));
    program("scontrol", "[ \"$1\" != requeue ] || echo \"$@\" >> " + (folder / "requeued").string());
    const Result r = execute({"/usr/bin/env", "PATH=" + folder.path().string() + ":/usr/bin:/bin", "SLURM_JOB_ID=17", "SLURM_NTASKS=2",
                              std::string("SLURM_SUBMIT_DIR=") + GYR_SOURCE_DIR, "/bin/bash",
                              std::string(GYR_SOURCE_DIR) + "/jobscripts/slurm-cpu.sh", "input/demo.yaml", "train.steps=5"});
    EXPECT_EQ(r.code, c.script) << output_of(r);
    const std::string started = contents(folder / "started");
    EXPECT_NE(started.find("-K1"), std::string::npos) << started;
    EXPECT_NE(started.find("train input/demo.yaml train.steps=5 --resume"), std::string::npos) << started;
    EXPECT_EQ(contents(folder / "requeued"), c.requeued ? "requeue 17\n" : "");
  }
}

// After SIGTERM (scancel, preemption) or SIGHUP (a closed terminal) the job script lets the run save, but does not requeue
// a cancelled job.
TEST(survive, cancelled_slurm_job_is_not_requeued) {
  for (const int cancelled_by : {SIGTERM, SIGHUP}) {
    SCOPED_TRACE(cancelled_by);
    const Folder folder;
    const auto program = [&](const char* name, const std::string& text) {
      folder.write(name, "#!/bin/bash\n" + text);
      fs::permissions(folder / name, fs::perms::owner_all);
    };
    program("srun", "trap 'exit 75' USR1; echo ready > " + (folder / "started").string() + "; for i in {1..100}; do sleep 0.1; done; exit 3");
    program("scontrol", "[ \"$1\" != requeue ] || echo \"$@\" >> " + (folder / "requeued").string());
    bool sent = false;
    const auto cancel = [&](int pid, const fs::path&) {
      if (!sent && contents(folder / "started") == "ready\n") sent = kill(pid, cancelled_by) == 0;
    };
    const Result r = execute(
        {"/usr/bin/env", "PATH=" + folder.path().string() + ":/usr/bin:/bin", "SLURM_JOB_ID=17", "SLURM_NTASKS=2",
         std::string("SLURM_SUBMIT_DIR=") + GYR_SOURCE_DIR, "/bin/bash", std::string(GYR_SOURCE_DIR) + "/jobscripts/slurm-cpu.sh", "input/demo.yaml"},
        {.meanwhile = cancel});
    EXPECT_EQ(r.code, 75) << output_of(r);
    EXPECT_NE(r.out.find("not queued again"), std::string::npos) << output_of(r);
    EXPECT_FALSE(fs::exists(folder / "requeued"));
  }
}

TEST(survive, invalid_fault_and_watchdog_settings_are_refused) {
  const Folder folder;
  for (const char* wrong :
       {"train.walltime=soon", "fault.kind=explode", "fault.kind=slow", "fault.kind=slow:0.5", "fault.kind=kill:3", "data.skip=[\"5\"]",
        "data.skip=[\"8:8\",\"4:2\"]", "train.spike=0.5", "watchdog.seconds=-1", "train.non_finite=ignore"}) {
    const Result r = run(train(folder.path(), {wrong}));
    EXPECT_EQ(r.code, 78) << wrong << output_of(r);
    EXPECT_NE(r.err.find(std::string(wrong).substr(0, std::string(wrong).find('='))), std::string::npos) << output_of(r);
  }
  EXPECT_EQ(run(train(folder.path(), {"fault.kind=kill", "fault.rank=2"}), {.ranks = 2}).code, 78);
  EXPECT_EQ(run(train(folder.path(), {"data.order=megatron", "train.non_finite=rollback"})).code, 78);
  EXPECT_EQ(run({"ps", folder / "none"}).code, 66);
}

}  // namespace

}  // namespace gyr::testing::survive_suite
