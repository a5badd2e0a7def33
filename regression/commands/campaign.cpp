// SPDX-License-Identifier: BSD-3-Clause
// Long campaigns of seeded trials, for a night or before a release: ctest -L slow.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "regression/support/faults.hpp"

namespace gyr::testing::campaign_suite {

using namespace gyr::testing;
namespace fs = std::filesystem;

namespace {

void faults(const std::string& what, const std::string& kind, unsigned first, unsigned count, Ranks ranks = Ranks::three_to_eight) {
  Trials trials(what);
  double longest = 0;
  for (unsigned seed = first; seed < first + count; ++seed) trials.attempt([&] { longest = std::max(longest, fault_trial(kind, seed, ranks)); });
  std::printf("%s: at most %.1f s between two steps\n", what.c_str(), longest);
}

TEST(campaign, two_hundred_kills) { faults("rank killed at a random step", "kill", 200, 200); }

TEST(campaign, a_hundred_faults) {
  faults("rank stopped (SIGSTOP)", "stop", 100, 17);
  faults("rank in an endless loop", "hang", 100, 17);
  faults("rank that exits with an exit code", "exit", 100, 17);
  faults("rank twice as slow", "slow", 100, 17);
  faults("NaN in the gradients of a rank", "nan", 100, 17);
  faults("flipped bit in a weight of a rank", "bitflip", 100, 17);
}

TEST(campaign, a_hundred_faults_on_eight_ranks) {
  constexpr unsigned each = 13;
  faults("8 ranks: one killed", "kill", 500, each, Ranks::eight);
  faults("8 ranks: one stopped (SIGSTOP)", "stop", 500, each, Ranks::eight);
  faults("8 ranks: one twice as slow", "slow", 500, each, Ranks::eight);
  faults("8 ranks: NaN in the gradients of one", "nan", 500, each, Ranks::eight);
  const auto damages = [](const char* what, Damage how) {
    Trials trials(what);
    for (unsigned seed = 500; seed < 500 + each; ++seed) trials.attempt([&] { damage_trial(how, seed); });
  };
  damages("8 ranks: flipped bit in a shard of the newest checkpoint", Damage::flipped_bit);
  damages("8 ranks: shard of the newest checkpoint truncated", Damage::truncated);
  damages("8 ranks: shard of the newest checkpoint missing", Damage::removed);
  Trials trials("8 ranks: disk of one is full");
  for (unsigned seed = 500; seed < 500 + each; ++seed) trials.attempt([&] { full_disk_trial(seed); });
}

TEST(campaign, sixty_signals_at_random_moments) {
  Trials trials("signal at a random phase of a run");
  for (unsigned seed = 100; seed < 160; ++seed) trials.attempt([&] { signal_trial(seed); });
}

// Flips each bit of one value on one of three data-parallel replicas, with replicas compared every second step. The
// flip must be detected by the second step after it, and the error must name the rank.
void flip_every_bit(const std::string& what, const std::string& kind) {
  constexpr int step = 3;
  const Words settings{"train.steps=6", "optimizer.decay_steps=6",         "parallel.data=3", "train.global_batch_size=6", "train.check_replicas=2",
                       "fault.rank=1",  fmt::format("fault.step={}", step)};
  std::string noticed;
  Trials trials(what);
  for (int bit = 0; bit < 32; ++bit)
    trials.attempt([&] {
      SCOPED_TRACE(fmt::format("{} of bit {}", kind, bit));
      Words words = settings;
      words.push_back(fmt::format("fault.kind={}:{}", kind, bit));
      const Folder folder;
      const Result r = run(Material::get().train(folder.path(), words), {.ranks = 3});
      noticed += r.code == 0 ? '.' : '|';
      EXPECT_EQ(r.code, 80) << r.out << r.err;
      EXPECT_NE(r.err.find("rank 1 "), std::string::npos) << r.err;
      EXPECT_TRUE(r.err.find("step 3") != std::string::npos || r.err.find("step 4") != std::string::npos) << r.err;
    });
  std::printf("%s, detected (|) by bit from 0: %s\n", what.c_str(), noticed.c_str());
}

TEST(campaign, flipping_any_weight_or_gradient_bit_is_detected) {
  flip_every_bit("each bit of a weight flipped", "bitflip");
  flip_every_bit("each bit of a summed gradient flipped", "gradflip");
}

// Repeated runs on the same layout must give bitwise equal losses.
TEST(campaign, twenty_runs_have_the_same_losses) {
  const Words settings{"train.steps=20", "parallel.data=2", "parallel.tensor=2", "checkpoint.async=true", "checkpoint.every=5"};
  std::map<int, double> first;
  Trials trials("same run repeated");
  for (int i = 0; i < 20; ++i)
    trials.attempt([&] {
      const Folder folder;
      ASSERT_EQ(run(Material::get().train(folder.path(), settings), {.ranks = 4}).code, 0);
      if (i == 0) first = losses(folder.path());
      ASSERT_EQ(first.size(), 20u);
      EXPECT_EQ(losses(folder.path()), first) << "run " << i;
    });
}

// Process id of a rank, read from heartbeat.bin, if the rank is past `step`; otherwise 0.
int process_of(const fs::path& output, int rank, std::int64_t step) {
  const std::string bytes = contents(output / "heartbeat.bin");
  if (bytes.size() < std::size_t(rank + 1) * 256) return 0;
  std::int32_t pid;
  std::int64_t at;
  std::memcpy(&pid, bytes.data() + rank * 256 + 20, sizeof pid);
  std::memcpy(&at, bytes.data() + rank * 256 + 24, sizeof at);
  return at > step ? pid : 0;
}

// Effective training time: seconds of steps that are not repeated, divided by the run's total seconds. A random rank is
// killed ten times.
TEST(campaign, ten_kills_cost_under_ten_percent_of_time) {
  constexpr int steps = 6000, kills = 10;
  const Folder folder;
  std::mt19937 random(1);
  int killed = 0;
  const auto kill_ranks = [&](int, const fs::path&) {
    if (killed == kills) return;
    const int victim = process_of(folder.path(), int(random() % 2), (killed + 1) * steps / (kills + 1) + int(random() % 50));
    if (victim > 0 && ::kill(victim, SIGKILL) == 0) ++killed;
  };
  Words words =
      Material::get().train(folder.path(), {fmt::format("train.steps={}", steps), "checkpoint.every=50", "checkpoint.async=true", "parallel.data=2",
                                            "train.seq_length=512", "supervise.max_restarts=20", "watchdog.heartbeat=0.2"});
  words[0] = "run";
  for (const std::string& more :
       {std::string("-n"), std::string("2"), std::string("--launcher"), std::string(GYR_MPIEXEC) + " -disable-auto-cleanup"})
    words.push_back(more);
  const Result r = run(words, {.limit = 1800, .meanwhile = kill_ranks});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  const auto status = json_in(folder / "supervisor.json");
  ASSERT_TRUE(status.is_object());
  std::printf("%d kills in %.0f s, %d restarts: effective training time %.3f\n", killed, status["seconds"].get<double>(),
              status["restarts"].get<int>(), status["effective_time_ratio"].get<double>());
  EXPECT_EQ(killed, kills);
  EXPECT_EQ(status["restarts"], kills);
  EXPECT_GE(status["effective_time_ratio"], 0.9);
}

struct ProcessResources {
  double resident_kib = 0;
  long descriptors = 0;
};

ProcessResources resources_of_process(int pid) {
  const fs::path process = "/proc/" + std::to_string(pid);
  ProcessResources h;
  std::ifstream status(process / "status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") status >> h.resident_kib;
  std::error_code gone;
  for (fs::directory_iterator entry(process / "fd", gone), end; !gone && entry != end; entry.increment(gone)) ++h.descriptors;
  return h;
}

TEST(campaign, long_run_leaks_no_memory_or_file_descriptors) {
  const Folder folder;
  std::vector<ProcessResources> seen[2];  // samples in the second and in the last quarter of the run
  auto last = std::chrono::steady_clock::now();
  const auto look = [&](int pid, const fs::path&) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::milliseconds(50)) return;
    last = now;
    for (const int part : {0, 1})
      if (process_of(folder.path(), 0, 500 + part * 1000) > 0 && process_of(folder.path(), 0, 1000 + part * 1000) == 0)
        seen[part].push_back(resources_of_process(pid));
  };
  const Result r =
      run(Material::get().train(folder.path(), {"train.steps=2000", "checkpoint.every=40", "checkpoint.async=true", "train.eval_every=100"}),
          {.limit = 600, .meanwhile = look});
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  ProcessResources least[2];  // minimum, to exclude memory that is used during saves
  for (const int part : {0, 1}) {
    ASSERT_GE(seen[part].size(), 10u);
    least[part] = seen[part][0];
    for (const ProcessResources& h : seen[part])
      least[part] = {std::min(least[part].resident_kib, h.resident_kib), std::min(least[part].descriptors, h.descriptors)};
  }
  std::printf("resident %.0f KiB, then %.0f KiB; %ld descriptors, then %ld\n", least[0].resident_kib, least[1].resident_kib, least[0].descriptors,
              least[1].descriptors);
  EXPECT_LE(least[1].resident_kib, least[0].resident_kib + 1024);
  EXPECT_LE(least[1].descriptors, least[0].descriptors);
}

// 86 million parameters, most of them in two wide MLP layers. The save of the last step is left out, because the run
// waits for it.
TEST(campaign, a_gigabyte_is_saved_while_training_continues) {
  const Folder folder;
  const Result r = run(Material::get().train(folder.path(), {"model.mlp.intermediate_size=446000", "train.steps=12", "checkpoint.every=3",
                                                             "checkpoint.async=true", "parallel.data=2"}),
                       {.ranks = 2, .limit = 600});
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  double bytes = 0, writing = 0, blocked = 0;
  for (const auto& save : metrics(folder.path(), "checkpoint"))
    if (save.at("step") != 12)
      bytes += double(save.at("bytes")), writing += double(save.at("write_seconds")), blocked += double(save.at("blocked_seconds"));
  std::printf("3 saves of %.2f GB: %.0f MB/s, steps wait for %.3f of the time\n", bytes / 3e9, bytes / writing / 1e6, blocked / writing);
  EXPECT_GE(bytes, 3e9);
  EXPECT_LT(blocked, 0.2 * writing);
}

}  // namespace

}  // namespace gyr::testing::campaign_suite
