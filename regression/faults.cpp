// SPDX-License-Identifier: BSD-3-Clause
#include "regression/faults.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

namespace gyr::testing {

namespace {

namespace fs = std::filesystem;

struct Grid {
  int ranks, data;
  Words settings;
};

constexpr int steps = 12, save_every = 4;

const Grid signal_grids[] = {{0, 1, {}}, {2, 2, {"parallel.data=2"}}, {4, 2, {"parallel.data=2", "parallel.tensor=2"}}};
const Grid fault_grids[] = {{4, 2, {"parallel.data=2", "parallel.tensor=2"}},
                            {3, 3, {"parallel.data=3", "train.batch=6"}},
                            {8, 4, {"parallel.data=4", "parallel.pipeline=2"}}};
const Grid slow_grid = {4, 4, {"parallel.data=4", "train.length=512", "train.micro_batch=2", "train.steps=40"}};

Words settings(const Grid& grid) {
  Words words{fmt::format("train.steps={}", steps), fmt::format("optimizer.decay_steps={}", steps), fmt::format("checkpoint.every={}", save_every),
              "train.eval_every=4", "train.eval_batches=4", "watchdog.heartbeat=0.1"};
  words.insert(words.end(), grid.settings.begin(), grid.settings.end());
  return words;
}

// A run on this grid that nobody disturbs, once per program.
const fs::path& undisturbed(const Grid& grid) {
  static std::map<const Grid*, std::unique_ptr<Folder>> done;
  static std::map<const Grid*, fs::path> paths;
  if (!done.contains(&grid)) {
    auto folder = std::make_unique<Folder>();
    const Result r = run(Material::get().train(folder->path(), settings(grid)), {.ranks = grid.ranks});
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    paths[&grid] = folder->path();
    done[&grid] = std::move(folder);
  }
  return paths[&grid];
}

// The phase in the first record of heartbeat.bin.
std::string phase(const fs::path& output) {
  const std::string bytes = contents(output / "heartbeat.bin");
  return bytes.size() < 176 ? "" : std::string(bytes.c_str() + 152);
}

// What a test has recorded so far, failures above all.
int recorded() { return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count(); }

}  // namespace

void signal_trial(unsigned seed, Count& count) {
  std::mt19937 random(seed);
  const Grid& grid = signal_grids[random() % 3];
  const int drawn = std::array{SIGTERM, SIGUSR1, SIGINT}[random() % 3];
  const int number = drawn == SIGINT && grid.ranks > 0 ? SIGTERM : drawn;  // at Ctrl-C Hydra ends the ranks itself
  const std::string moment = std::array{"start", "step", "validate", "save", "end"}[seed % 5];
  const int at_step = moment == "end" ? steps : int(1 + random() % (steps - 2));
  const double delay = double(random() % 20) * 1e-3;
  SCOPED_TRACE(fmt::format("seed {}: signal {} in {} (step {}) on {} ranks", seed, number, moment, at_step, grid.ranks));
  ++count.tried;
  const int before = recorded();
  const Folder folder;
  bool sent = false;
  std::optional<std::chrono::steady_clock::time_point> seen;
  const auto disturb = [&](int pid, const fs::path& out) {
    if (sent) return;
    const auto reached = [&] {
      if (moment == "start") return contents(out).find("Gyrfalcon") != std::string::npos;
      if (moment == "validate" || moment == "save") return phase(folder.path()) == moment;
      return losses(folder.path()).contains(at_step);
    };
    const auto now = std::chrono::steady_clock::now();
    if (!seen && reached()) seen = now;
    if (!seen || std::chrono::duration<double>(now - *seen).count() < delay) return;
    kill(pid, number);
    sent = true;
  };
  Words words = Material::get().train(folder.path(), settings(grid));
  words.push_back("watchdog.heartbeat=0.01");
  const Result first = run(words, {.ranks = grid.ranks, .meanwhile = disturb});
  // Of a job that was sent a signal Hydra sometimes says 0 whatever its ranks ended with: the run's own last line counts.
  if (first.out.find("RUN OK") != std::string::npos) {
    EXPECT_TRUE(fs::exists(Material::checkpoint(folder.path(), steps)));  // it was done when the signal came
  } else {
    EXPECT_TRUE(first.code == 75 || (first.code == 0 && grid.ranks > 0)) << first.code << first.out << first.err;
    EXPECT_NE(first.out.find("RUN STOPPED 75"), std::string::npos) << first.out;
    words.push_back("--resume");
    const Result second = run(words, {.ranks = grid.ranks});
    EXPECT_EQ(second.code, 0) << second.out << second.err;
  }
  expect_same_end(undisturbed(grid), folder.path(), steps);
  if (recorded() == before) ++count.survived;
}

void fault_trial(const std::string& kind, unsigned seed, Count& count) {
  std::mt19937 random(seed);
  const Grid& grid = kind == "slow" ? slow_grid : kind == "bitflip" ? fault_grids[1 + random() % 2] : fault_grids[random() % 3];
  const int rank = int(random() % unsigned(grid.ranks)), step = int(1 + random() % steps);
  std::string spelt = kind;
  if (kind == "exit") spelt += ":" + std::to_string(random() % 60);
  if (kind == "slow") spelt += ":2.0";
  if (kind == "bitflip") spelt += ":" + std::to_string(10 + random() % 16);
  const std::string what = fmt::format("seed {}: {} on rank {} of {} at step {}", seed, spelt, rank, grid.ranks, step);
  SCOPED_TRACE(what);
  ++count.tried;
  const int before = recorded();
  constexpr double patience = 3;
  const Folder folder;
  Words words = Material::get().train(folder.path(), settings(grid));
  words[0] = "run";
  for (const std::string& more : {std::string("-n"), std::to_string(grid.ranks), std::string("--launcher"), std::string(GYR_MPIEXEC) + " -disable-auto-cleanup",
                                  "fault.kind=" + spelt, fmt::format("fault.rank={}", rank), fmt::format("fault.step={}", kind == "slow" ? 1 : step),
                                  fmt::format("watchdog.seconds={}", patience), std::string("supervise.silent=3"), std::string("supervise.slow_steps=15")})
    words.push_back(more);
  if (kind == "bitflip") words.push_back("train.check_replicas=1");
  const Result r = run(words);
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("FAULT INJECTION"), std::string::npos);

  const auto status = nlohmann::json::parse(contents(folder / "supervisor.json"), nullptr, false);
  ASSERT_TRUE(status.is_object()) << r.out << r.err;
  const auto& life = status["lives"][0];
  const std::string culprit = life["culprit"], named = "rank " + std::to_string(rank);
  if (kind == "slow") {
    EXPECT_EQ(status["restarts"], 0) << status.dump(1);
    EXPECT_TRUE(life["slow"].size() == 1 && std::string(life["slow"][0]).starts_with(named + " ")) << status.dump(1) << r.out;
  } else {
    EXPECT_EQ(status["restarts"], 1) << status.dump(1) << r.out << r.err;
    EXPECT_NE((culprit + " ").find(named + " "), std::string::npos) << culprit << "\n" << r.out << r.err;
    EXPECT_LE(life["seconds"], patience + 5 + 20) << status.dump(1);
    EXPECT_GE(status["lives"][1]["from"], std::max(0, (step - 1) / save_every * save_every));  // nothing is lost but the steps since the last save
    EXPECT_EQ(losses(undisturbed(grid)), losses(folder.path()));
  }
  std::printf("%s: %s\n", what.c_str(), recorded() == before ? "survived" : "NOT survived");
  std::fflush(stdout);
  if (recorded() == before) ++count.survived;
}

}  // namespace gyr::testing
