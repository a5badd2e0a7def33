// SPDX-License-Identifier: BSD-3-Clause
// Tests of the output folder, which belongs to one run: a second start changes nothing, two machines never write to it
// at once, and a deleted, full or symbolically linked folder loses no data and gives an error.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <thread>

#include "regression/support/material.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::folder_suite {

namespace fs = std::filesystem;

namespace {

Words train(const fs::path& folder, const Words& more) {
  Words words{"checkpoint.every=0", "watchdog.heartbeat=0.05"};
  words.insert(words.end(), more.begin(), more.end());
  return Material::get().train(folder, words);
}

Words supervised(const fs::path& folder, const Words& more) {
  Words words = train(folder, more);
  words[0] = "run";
  for (const char* word : {"-n", "1", "--launcher", "none"}) words.push_back(word);
  return words;
}

// Shell command line of the program with these arguments.
std::string line_of(const Words& arguments) {
  std::string line = GYR_BINARY;
  for (const std::string& word : arguments) line += " '" + word + "'";
  return line;
}

// Runs a command with std::system while execute() waits for another process; returns its exit code and its output.
std::pair<int, std::string> run_concurrently(const std::string& line, const fs::path& out) {
  const int status = std::system((line + " > " + out.string() + " 2>&1 < /dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(out)};
}

std::vector<int> descendants(int pid) {
  std::vector<int> all{pid};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::error_code gone;
    for (fs::directory_iterator task("/proc/" + std::to_string(all[i]) + "/task", gone), end; !gone && task != end; task.increment(gone)) {
      std::istringstream list(contents(task->path() / "children"));
      for (int child; list >> child;) all.push_back(child);
    }
  }
  return all;
}

// Inode, modification time and contents of every file in a folder.
std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat s {};
    lstat(entry.path().c_str(), &s);
    all[entry.path().string()] =
        fmt::format("{} {}.{} {}", s.st_ino, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, entry.is_regular_file() ? contents(entry.path()) : "");
  }
  return all;
}

// Stops the processes with SIGSTOP and waits until none runs: a process may still write shortly after the signal.
void stop(const std::vector<int>& processes) {
  for (const int process : processes) kill(process, SIGSTOP);
  const auto runs = [](int process) {
    std::error_code gone;
    for (fs::directory_iterator task(fmt::format("/proc/{}/task", process), gone), end; !gone && task != end; task.increment(gone)) {
      const std::string text = contents(task->path() / "status");
      const auto at = text.find("State:\t");
      if (at != std::string::npos && std::string("TtZX").find(text[at + 7]) == std::string::npos) return true;
    }
    return false;
  };
  for (int tries = 0; tries < 1000 && std::any_of(processes.begin(), processes.end(), runs); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

bool has_step(const fs::path& folder, int step) { return losses(folder).contains(step); }

// The live run is stopped while other runs start, so that any change in its folder comes from them.
void second_start_changes_nothing(bool is_supervised) {
  SCOPED_TRACE(is_supervised ? "run" : "train");
  const Folder folder;
  const fs::path out = folder / "out";
  bool done = false;
  const auto refused = [&](const Words& words, int code, const std::string& why, const std::map<std::string, std::string>& before) {
    const auto [ended, printed] = run_concurrently(line_of(words), folder / "second");
    EXPECT_EQ(ended, code) << printed;
    for (const std::string& part : {why, fmt::format("RUN FAILED {}", code)}) EXPECT_NE(printed.find(part), std::string::npos) << printed;
    EXPECT_TRUE(snapshot(out) == before) << words[0] << " changed the folder of a live run\n" << printed;
  };
  const auto intrude = [&](int pid, const fs::path&) {
    if (done || !has_step(out, 3)) return;
    done = true;
    const auto live = descendants(pid);
    stop(live);
    const auto before = snapshot(out);
    for (const Words& options : {Words{}, {"--resume"}, {"--take-over"}}) {
      for (Words words : {train(out, {"train.steps=5"}), supervised(out, {"train.steps=5"})}) {
        if (words[0] == "run" && options == Words{"--resume"}) continue;
        words.insert(words.end(), options.begin(), options.end());
        refused(words, 74, "another run writes to this folder", before);
      }
    }
    refused(train(out, {"train.global_batch_size=7", "train.micro_batch_size=2"}), 78, "batch", before);
    refused(train(out, {"data.tokenizer=/none"}), 66, "/none", before);
    for (const int process : live) kill(process, SIGCONT);
  };
  const Words words{"train.steps=40", "optimizer.decay_steps=40", "checkpoint.every=10"};
  const Result r = run(is_supervised ? supervised(out, words) : train(out, words), {.meanwhile = intrude});
  EXPECT_EQ(r.code, 0) << output_of(r);
  EXPECT_TRUE(done);
  EXPECT_EQ(json_in(out / "status.json")["state"], "done");
  if (is_supervised) {
    EXPECT_EQ(json_in(out / "supervisor.json")["restarts"], 0);
  }
}

TEST(folder, live_run_folder_is_unchanged_by_second_start) {
  for (const bool is_supervised : {false, true}) second_start_changes_nothing(is_supervised);
}

// Everything in the folder of a finished run but the files of its locks.
std::map<std::string, std::string> unlocked(const fs::path& folder) {
  auto files = snapshot(folder);
  for (const char* name : {"lock", "supervisor.lock"}) files.erase((folder / name).string());
  return files;
}

void refused_starts_change_nothing(bool was_supervised) {
  SCOPED_TRACE(was_supervised ? "run" : "train");
  const Folder folder;
  const fs::path out = folder / "out";
  const Words settings{"train.steps=4", "optimizer.decay_steps=4", "checkpoint.every=2"};
  const auto with = [&](const Words& more) {
    Words words = settings;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Result full = run(was_supervised ? supervised(out, settings) : train(out, settings));
  ASSERT_EQ(full.code, 0) << output_of(full);
  if (was_supervised) put_contents(out / "exit_record.0.json", "{}");  // of an attempt that a rank ended
  const std::string other = Material::get().trained();
  const fs::path damaged = folder / "damaged";
  fs::copy(other, damaged, fs::copy_options::recursive);
  std::string bytes = contents(Material::shard(damaged));
  bytes[bytes.size() / 2] = char(bytes[bytes.size() / 2] ^ 1);
  put_contents(Material::shard(damaged), bytes);
  struct Refusal {
    Words words;
    int code;
    bool supervised = true;  // false: gyrfalcon run always resumes
  };
  const std::vector<Refusal> refusals{{{}, 64, false},
                                      {{"--resume", "model.mlp.intermediate_size=96"}, 78},
                                      {{"--resume", "model.attention.rope_theta=3e4"}, 78},
                                      {{"--resume", "--accept-changes", "model.mlp.intermediate_size=96"}, 78},
                                      {{"--resume", "train.global_batch_size=7", "train.micro_batch_size=2"}, 78},
                                      {{"--resume", "data.tokenizer=/none"}, 66},
                                      {{"--anew", "--init-from", (folder / "none").string()}, 66, false},
                                      {{"--anew", "--init-from", damaged.string()}, 65, false},
                                      {{"--anew", "--init-from", other, "model.mlp.intermediate_size=96"}, 78, false}};
  const auto refuse = [&](Words words, int code, bool is_supervised) {
    if (is_supervised) words.erase(words.begin());  // --resume
    const auto before = unlocked(out);
    const Result r = run(is_supervised ? supervised(out, with(words)) : train(out, with(words)));
    EXPECT_EQ(r.code, code) << output_of(r);
    EXPECT_TRUE(unlocked(out) == before) << output_of(r);
    EXPECT_EQ(fs::exists(out / "supervisor.lock"), was_supervised) << output_of(r);
  };
  for (const Refusal& refusal : refusals)
    for (const bool is_supervised : {false, true})
      if (!is_supervised || refusal.supervised) refuse(refusal.words, refusal.code, is_supervised);
  EXPECT_EQ(json_in(out / "status.json")["state"], "done");
  for (const int step : {2, 4}) fs::remove(Material::checkpoint(out, step) / "manifest.json");
  for (const bool is_supervised : {false, true}) refuse({"--resume"}, 65, is_supervised);
  put_contents(out / "run.json", "{}");
  for (const bool is_supervised : {false, true}) refuse({"--resume"}, 65, is_supervised);
}

// A start that is refused, for any reason, leaves the folder of a finished run as it was.
TEST(folder, refused_start_leaves_finished_run_unchanged) {
  for (const bool was_supervised : {false, true}) refused_starts_change_nothing(was_supervised);
}

// Between two attempts no rank of a supervised run exists, but the supervisor still owns the folder.
TEST(folder, supervisor_keeps_folder_locked_between_attempts) {
  const Folder folder;
  const fs::path out = folder / "out";
  bool done = false;
  const auto between = [&](int pid, const fs::path&) {
    if (done || !fs::exists(out / "supervisor.json")) return;
    done = true;
    const auto live = descendants(pid);
    stop(live);
    const auto [code, printed] = run_concurrently(line_of(train(out, {"train.steps=5", "--resume"})), folder / "second");
    EXPECT_EQ(code, 74) << printed;
    EXPECT_NE(printed.find("another run writes to this folder"), std::string::npos) << printed;
    for (const int process : live) kill(process, SIGCONT);
  };
  const Result r = run(supervised(out, {"train.steps=12", "checkpoint.every=4", "fault.kind=exit:7", "fault.step=6"}), {.meanwhile = between});
  EXPECT_EQ(r.code, 0) << output_of(r);
  EXPECT_TRUE(done);
  EXPECT_EQ(json_in(out / "supervisor.json")["restarts"], 1);
}

// Environment variables that make the program see this host name (with LD_PRELOAD), plus more variables.
std::string on(const std::string& host, const std::string& more) { return fmt::format("{} LD_PRELOAD={} GYR_HOST={} ", more, GYR_OTHER_HOST, host); }

// Slurm requeues a job after a node failure: the job id is the same, but the first node is another one.
TEST(folder, killed_run_folder_is_taken_over_elsewhere) {
  const Folder folder;
  const auto killed = [&](const std::string& name, const std::string& job, bool is_supervised) {
    const Words words{"train.steps=100000", "checkpoint.every=2"};
    const Result r = execute(
        {"/bin/sh", "-c", "exec env " + on("east", job) + line_of(is_supervised ? supervised(folder / name, words) : train(folder / name, words))},
        {.kill_when = [&] { return fs::exists(Material::checkpoint(folder / name, 4)); }});
    EXPECT_TRUE(r.killed) << output_of(r);
  };
  const auto next = [&](const std::string& name, const std::string& job, bool is_supervised, const Words& more, const std::string& why) {
    SCOPED_TRACE(name);
    Words settings{"train.steps=12", "checkpoint.every=2"};
    settings.insert(settings.end(), more.begin(), more.end());
    Words words = is_supervised ? supervised(folder / name, settings) : train(folder / name, settings);
    if (!is_supervised) words.push_back("--resume");
    const Result r = execute({"/bin/sh", "-c", "exec env " + on("west", job) + line_of(words)});
    EXPECT_EQ(r.code, 0) << output_of(r);
    for (const std::string& part : {std::string("taken over from process"), std::string("on east"), why, std::string("resumed from")})
      EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << output_of(r);
  };
  const std::string first = "SLURM_JOB_ID=36 SLURM_CLUSTER_NAME=big SLURM_STEP_ID=0", again = first + " SLURM_RESTART_COUNT=1";
  for (const bool is_supervised : {false, true}) {
    const std::string name = is_supervised ? "run" : "train";
    killed(name, first, is_supervised);
    next(name, again, is_supervised, {}, "its job has been started again");
  }
  for (const char* job : {"", "PBS_JOBID=12.server"}) {
    const std::string name = fmt::format("still{}", std::strlen(job));
    killed(name, job, false);
    next(name, job, false, {"output.lock_seconds=2"}, "no sign of life for 2 s");
  }
}

// Two runs, some under a supervisor, start at nearly the same time: one gets the folder, and the other ends with an
// error.
TEST(folder, one_of_two_simultaneous_starts_gets_the_folder) {
  constexpr unsigned pairs = 4;
  const Folder folder;
  std::mt19937 random(5);
  std::string script;
  for (unsigned pair = 0; pair < pairs; ++pair)
    for (const char* host : {"east", "west"}) {
      const Words settings{"train.steps=300", "train.log_every=1000"};
      const fs::path out = folder / fmt::format("out{}", pair);
      const Words words = random() % 3 == 0 ? supervised(out, settings) : train(out, settings);
      script += fmt::format("(sleep 0.{:03}; {}{} > {}.{} 2>&1; echo $? > {}.{}.code) &\n", random() % 150, on(host, "GYR_NFS=1"), line_of(words),
                            out.string(), host, out.string(), host);
    }
  const Result r = execute({"/bin/bash", "-c", script + "wait"});
  Trials trials("simultaneous starts of two machines in one folder");
  for (unsigned pair = 0; pair < pairs; ++pair)
    trials.attempt([&] {
      std::vector<std::string> codes, printed;
      for (const char* host : {"east", "west"}) {
        codes.push_back(contents(folder / fmt::format("out{}.{}.code", pair, host)));
        printed.push_back(contents(folder / fmt::format("out{}.{}", pair, host)));
      }
      EXPECT_TRUE((codes == std::vector<std::string>{"0\n", "74\n"}) || (codes == std::vector<std::string>{"74\n", "0\n"}))
          << codes[0] << printed[0] << codes[1] << printed[1];
      EXPECT_NE(printed[codes[0] == "0\n"].find("another run"), std::string::npos) << printed[codes[0] == "0\n"];
      EXPECT_EQ(losses(folder / fmt::format("out{}", pair)).size(), 300u);
    });
}

// The folder is moved or deleted file by file at a random moment of a save.
TEST(folder, output_folder_deleted_during_a_save_is_named) {
  std::mt19937 random(seed_of_run());
  Trials trials("output folder deleted during a save");
  for (int draw = 0; draw < 8; ++draw)
    trials.attempt([&] {
      const Folder folder;
      const fs::path out = folder / "out";
      const bool step_by_step = draw % 2 == 1, parallel = draw % 4 > 1;
      int left = -1;
      const auto remove = [&](int, const fs::path&) {
        if (left < 0 && fs::exists(Material::checkpoint(out, 3))) left = int(random() % 40);
        if (left < 0 || left-- != 0) return;
        std::error_code ignored;
        if (!step_by_step) fs::rename(out, folder / "away", ignored);
        // the run may create a file in a folder that is about to be removed
        for (int tries = 0; tries < 1000 && fs::exists(out); ++tries) fs::remove_all(out, ignored);
      };
      const Words words{"train.steps=100000", "checkpoint.every=1", "checkpoint.async=" + std::string(draw % 3 == 0 ? "false" : "true")};
      Words command = train(out, words);
      if (parallel) command.push_back("parallel.tensor=2");
      const Result r = run(command, {.ranks = parallel ? 2 : 0, .limit = 60, .meanwhile = remove});
      EXPECT_EQ(r.code, 74) << output_of(r);
      EXPECT_NE(r.err.find("the output folder has been deleted or moved"), std::string::npos) << output_of(r);
    });
}

// A deleted output folder must not be created again, and the run must report the reason for its end.
TEST(folder, deleted_output_folder_ends_the_run) {
  Trials trials("output folder deleted during a run");
  for (const auto& [ranks, every, is_supervised] : {std::tuple(0, 0, false), {0, 5, false}, {4, 5, false}, {0, 0, true}})
    trials.attempt([&, ranks = ranks, every = every, is_supervised = is_supervised] {
      SCOPED_TRACE(fmt::format("{} ranks, checkpoint.every={}{}", ranks, every, is_supervised ? ", supervised" : ""));
      const Folder folder;
      const fs::path out = folder / "out";
      bool done = false;
      const auto remove = [&](int, const fs::path&) {
        if (done || !has_step(out, 3)) return;
        fs::rename(out, folder / "away");  // atomic, unlike removing the files one by one
        done = true;
      };
      Words words{"train.steps=100000", fmt::format("checkpoint.every={}", every)};
      if (ranks > 0) words.push_back("parallel.tensor=2");
      const Result r = run(is_supervised ? supervised(out, words) : train(out, words), {.ranks = ranks, .limit = 30, .meanwhile = remove});
      EXPECT_EQ(r.code, 74) << output_of(r);
      EXPECT_NE(r.err.find("the output folder has been deleted or moved"), std::string::npos) << output_of(r);
      EXPECT_NE(r.err.find(out.string()), std::string::npos) << output_of(r);
      EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 74")) << output_of(r);
      EXPECT_FALSE(fs::exists(out)) << output_of(r);
      if (is_supervised) {
        EXPECT_NE(r.out.find("0 restarts"), std::string::npos) << output_of(r);
      }
    });
}

// A file-size limit of 512 bytes makes the run's and the supervisor's files fail; standard output goes to a pipe and is
// not limited.
TEST(folder, on_full_disk_supervisor_still_prints_its_report) {
  const Folder folder;
  put_contents(folder / "launcher", "#!/bin/sh\nexit 74\n");
  fs::permissions(folder / "launcher", fs::perms::owner_all);
  Words words = train(folder / "out", {});
  words[0] = "run";
  for (const std::string& word : {std::string("-n"), std::string("1"), std::string("--launcher"), (folder / "launcher").string()})
    words.push_back(word);
  const Result r = execute({"/bin/sh", "-c", "(ulimit -f 1; trap '' XFSZ; exec " + line_of(words) + ") 2>&1 | cat"});
  for (const char* part : {"cause", "useful time", "supervisor.json", "giving up"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << output_of(r);
  EXPECT_TRUE(last_line_of(r.out).starts_with("RUN FAILED 74")) << output_of(r);
}

// Files that a run writes to an output folder, and their temporary names (.tmp).
std::vector<fs::path> names_in(const fs::path& folder) {
  std::vector<fs::path> names{"exit_record.0.json", "backtrace.00000.txt"};
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (const fs::path name = fs::relative(entry.path(), folder); entry.is_regular_file() && name.string().find("step_") == std::string::npos)
      names.push_back(name), names.push_back(name.string() + ".tmp");
  return names;
}

// A symbolic link at the path of a replaced file is replaced. At the path of a file that is appended to or locked, it
// is refused.
TEST(folder, targets_of_symbolic_links_stay_unchanged) {
  const auto settings = [](int steps) { return Words{fmt::format("train.steps={}", steps), "optimizer.decay_steps=4", "checkpoint.every=2"}; };
  const Folder full;
  ASSERT_EQ(run(supervised(full / "out", settings(2))).code, 0);
  std::vector<std::vector<fs::path>> laid{{}, {"metrics.jsonl"}, {"lock"}, {"supervisor.lock"}};
  for (const fs::path& name : names_in(full / "out"))
    if (name != "metrics.jsonl" && name != "lock" && name != "supervisor.lock") laid[0].push_back(name);
  EXPECT_GT(laid[0].size(), 12u);
  Trials trials("symbolic links in an output folder");
  for (const auto& names : laid)
    trials.attempt([&] {
      const bool refused = names.size() == 1;
      const Folder folder;
      fs::copy(full / "out", folder / "out", fs::copy_options::recursive);
      const auto owned_by_run = [&](const fs::path& name) {
        std::string plain = name;
        std::replace(plain.begin(), plain.end(), '/', '.');
        return folder / ("own." + plain);
      };
      for (const fs::path& name : names) {
        put_contents(owned_by_run(name), contents(folder / "out" / name));  // some files are read before they are written
        fs::remove(folder / "out" / name);
        fs::create_symlink(owned_by_run(name), folder / "out" / name);
      }
      const Result r = run(supervised(folder / "out", settings(4)));
      EXPECT_EQ(r.code, refused ? 74 : 0) << output_of(r);
      for (const fs::path& name : names) EXPECT_EQ(contents(owned_by_run(name)), contents(full / "out" / name)) << name;
      if (refused) {
        EXPECT_NE((r.out + r.err).find((folder / "out" / names[0]).string() + ": "), std::string::npos) << output_of(r);
        EXPECT_NE((r.out + r.err).find("it is a symbolic link"), std::string::npos) << output_of(r);
      }
    });
}

// The supervisor must forward every signal to its ranks, including repeated ones.
TEST(folder, supervisor_forwards_every_signal_to_its_ranks) {
  const Folder folder;
  const fs::path received = folder / "heard";
  put_contents(folder / "launcher", "#!/bin/bash\nfor s in TERM USR1 INT; do trap \"echo $s >> " + received.string() + "\" $s; done\necho ready >> " +
                                        received.string() + "\nwhile [ ! -e " + (folder / "enough").string() + " ]; do sleep 0.05; done\nexit 78\n");
  fs::permissions(folder / "launcher", fs::perms::owner_all);
  const std::vector<std::pair<int, std::string>> sent{{SIGUSR1, "USR1"}, {SIGUSR1, "USR1"}, {SIGTERM, "TERM"},
                                                      {SIGINT, "INT"},   {SIGHUP, "USR1"},  {SIGTERM, "TERM"}};
  std::string expected = "ready\n";
  std::size_t next = 0;
  const auto signal = [&](int pid, const fs::path&) {
    if (contents(received) != expected) return;
    if (next == sent.size()) return put_contents(folder / "enough", "");
    kill(pid, sent[next].first);
    expected += sent[next++].second + "\n";
  };
  Words words = train(folder / "out", {});
  words[0] = "run";
  for (const std::string& word : {std::string("-n"), std::string("1"), std::string("--launcher"), (folder / "launcher").string()})
    words.push_back(word);
  const Result r = run(words, {.limit = 30, .meanwhile = signal});
  EXPECT_EQ(r.code, 78) << output_of(r);
  EXPECT_EQ(contents(received), expected);
}

TEST(folder, wrong_launcher_is_refused_before_the_folder_exists) {
  const Folder folder;
  Words words = supervised(folder / "out", {});
  words[std::size_t(std::find(words.begin(), words.end(), "-n") - words.begin()) + 1] = "2";  // --launcher none starts one
  const Result r = run(words);
  EXPECT_EQ(r.code, 64) << output_of(r);
  EXPECT_FALSE(fs::exists(folder / "out"));
}

// A start in a new folder leaves the reason for its refusal there.
TEST(folder, refused_first_start_is_recorded) {
  const Folder folder;
  const Result r = run(supervised(folder / "out", {"data.prefixes=[" + (folder / "none").string() + "]"}));
  EXPECT_EQ(r.code, 66) << output_of(r);
  const auto record = json_in(folder / "out/supervisor.json");
  EXPECT_EQ(record["state"], "refused") << record;
  EXPECT_EQ(record["code"], 66) << record;
  EXPECT_NE(record["gave_up"], "") << record;
}

TEST(folder, killed_run_is_reported_as_killed_immediately) {
  const Folder folder;
  run(train(folder / "out", {"train.steps=100000"}), {.kill_when = [&] { return losses(folder / "out").contains(2); }});
  const Result r = run({"ps", folder / "out"});
  EXPECT_NE(r.out.find("state: killed (no final record"), std::string::npos) << output_of(r);
}

// SIGUSR1 makes a supervised run save and stop, without a restart.
TEST(folder, supervised_run_saves_and_stops_on_sigusr1) {
  const Folder folder;
  bool sent = false;
  const auto stop = [&](int pid, const fs::path&) {
    if (!sent && has_step(folder / "out", 3)) sent = kill(pid, SIGUSR1) == 0;
  };
  const Result r = run(supervised(folder / "out", {"train.steps=100000"}), {.limit = 30, .meanwhile = stop});
  EXPECT_EQ(r.code, 75) << output_of(r);
  EXPECT_NE(r.out.find("0 restarts"), std::string::npos) << output_of(r);
  EXPECT_FALSE(fs::is_empty(folder / "out/checkpoints"));
}

// Process id of rank 0, read from heartbeat.bin, if the rank is past `step`; otherwise 0.
int process_past(const fs::path& output, std::int64_t step) {
  const std::string bytes = contents(output / "heartbeat.bin");
  if (bytes.size() < 256) return 0;
  std::int32_t pid;
  std::int64_t at;
  std::memcpy(&pid, bytes.data() + 20, sizeof pid);
  std::memcpy(&at, bytes.data() + 24, sizeof at);
  return at > step ? pid : 0;
}

// The only rank is killed several times. The supervisor continues as long as checkpoints show progress between the
// kills.
TEST(folder, run_finishes_although_its_only_rank_dies_repeatedly) {
  constexpr int steps = 120, kills = 3;
  const Folder folder;
  int killed = 0;
  const auto kill_it = [&](int, const fs::path&) {
    const int saved = 30 * (killed + 1);
    if (killed == kills || !fs::exists(Material::checkpoint(folder / "out", saved))) return;
    if (const int pid = process_past(folder / "out", saved); pid > 0 && kill(pid, SIGKILL) == 0) ++killed;
  };
  const Result r =
      run(supervised(folder / "out", {fmt::format("train.steps={}", steps), "checkpoint.every=15", "checkpoint.keep=100"}), {.meanwhile = kill_it});
  EXPECT_EQ(r.code, 0) << output_of(r);
  EXPECT_EQ(killed, kills);
  EXPECT_EQ(json_in(folder / "out/supervisor.json")["restarts"], kills);
}

}  // namespace

}  // namespace gyr::testing::folder_suite
