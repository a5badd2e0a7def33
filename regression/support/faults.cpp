// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/faults.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <random>

namespace gyr::testing {

namespace {

namespace fs = std::filesystem;

struct Grid {
  int ranks, data;
  Words settings;
};

constexpr int steps = 12, save_every = 4, slow_steps = 40;
constexpr double restart_seconds = 5;  // allowance to end the rest of a job, start eight ranks on two cores, and load

const Grid signal_grids[] = {{0, 1, {}}, {2, 2, {"parallel.data=2"}}, {4, 2, {"parallel.data=2", "parallel.tensor=2"}}};
const Grid fault_grids[] = {{4, 2, {"parallel.data=2", "parallel.tensor=2"}},
                            {3, 3, {"parallel.data=3", "train.global_batch_size=6"}},
                            {8, 4, {"parallel.data=4", "parallel.pipeline=2"}}};
const Grid grids_of_eight[] = {{8, 8, {"parallel.data=8"}},
                               {8, 4, {"parallel.data=4", "parallel.pipeline=2"}},
                               {8, 2, {"parallel.data=2", "parallel.pipeline=2", "parallel.tensor=2"}},
                               {8, 2, {"parallel.data=2", "parallel.tensor=4"}}};
const Grid slow_grid = {4, 4, {"parallel.data=4", "train.seq_length=512", "train.micro_batch_size=2", fmt::format("train.steps={}", slow_steps)}};
const Grid slow_grid_of_eight = {8, 8, {"parallel.data=8", "train.seq_length=512", fmt::format("train.steps={}", slow_steps)}};

Words settings(const Grid& grid) {
  Words words{fmt::format("train.steps={}", steps),
              fmt::format("optimizer.decay_steps={}", steps),
              fmt::format("checkpoint.every={}", save_every),
              "train.eval_every=4",
              "train.eval_batches=4",
              "watchdog.heartbeat=0.1"};
  words.insert(words.end(), grid.settings.begin(), grid.settings.end());
  return words;
}

// Output folder of an undisturbed run on this grid, made once per test program.
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

// Phase that the first record of heartbeat.bin names.
std::string phase(const fs::path& output) {
  const std::string bytes = contents(output / "heartbeat.bin");
  return bytes.size() < 176 ? "" : std::string(bytes.c_str() + 152);
}

const Grid& grid_of(const std::string& kind, Ranks ranks, std::mt19937& random) {
  if (kind == "slow") return ranks == Ranks::eight ? slow_grid_of_eight : slow_grid;
  if (ranks == Ranks::eight) return grids_of_eight[random() % std::size(grids_of_eight)];
  return kind == "bitflip" ? fault_grids[1 + random() % 2] : fault_grids[random() % 3];
}

std::vector<fs::path> shards_of(const fs::path& checkpoint) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.path().filename().string().starts_with("shard_")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// Longest wall time between two steps of a run, in seconds.
double longest_pause(const fs::path& output) {
  const auto steps = metrics(output, "step");
  double pause = 0;
  for (std::size_t i = 1; i < steps.size(); ++i) pause = std::max(pause, double(steps[i].at("time")) - double(steps[i - 1].at("time")));
  return pause;
}

fs::path newest_of(const fs::path& output) {
  for (int step = steps; step > 0; --step)
    if (const fs::path path = Material::checkpoint(output, step); fs::exists(path)) return path;
  return {};
}

void damage(const fs::path& file, Damage how, std::mt19937& random) {
  const auto size = fs::file_size(file);
  if (how == Damage::removed) fs::remove(file);
  if (how == Damage::truncated) fs::resize_file(file, random() % size);
  if (how != Damage::flipped_bit) return;
  std::string bytes = contents(file);
  char& byte = bytes[random() % size];
  byte = char(byte ^ (1 << random() % 8));
  put_contents(file, bytes);
}

}  // namespace

void signal_trial(unsigned seed) {
  std::mt19937 random(seed);
  const Grid& grid = signal_grids[random() % 3];
  const int drawn = std::array{SIGTERM, SIGUSR1, SIGINT}[random() % 3];
  const int number = drawn == SIGINT && grid.ranks > 0 ? SIGTERM : drawn;  // on Ctrl-C, Hydra itself ends the ranks
  const std::string moment = std::array{"start", "step", "validate", "save", "end"}[seed % 5];
  const int at_step = moment == "end" ? steps : int(1 + random() % (steps - 2));
  const double delay = double(random() % 20) * 1e-3;
  SCOPED_TRACE(fmt::format("seed {}: signal {} in {} (step {}) on {} ranks", seed, number, moment, at_step, grid.ranks));
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
  // After a signal, Hydra sometimes exits with 0 whatever the ranks' exit codes are. Therefore the run's own last line
  // counts.
  if (first.out.find("RUN OK") != std::string::npos) {
    EXPECT_TRUE(fs::exists(Material::checkpoint(folder.path(), steps)));  // the run had finished before the signal
  } else {
    EXPECT_TRUE(first.code == 75 || (first.code == 0 && grid.ranks > 0)) << first.code << first.out << first.err;
    EXPECT_NE(first.out.find("RUN STOPPED 75"), std::string::npos) << first.out;
    words.push_back("--resume");
    const Result second = run(words, {.ranks = grid.ranks});
    EXPECT_EQ(second.code, 0) << second.out << second.err;
  }
  expect_bitwise_equal_runs(undisturbed(grid), folder.path(), steps);
}

double fault_trial(const std::string& kind, unsigned seed, Ranks ranks) {
  std::mt19937 random(seed);
  const Grid& grid = grid_of(kind, ranks, random);
  const int rank = int(random() % unsigned(grid.ranks)), step = int(1 + random() % steps);
  std::string spelt = kind;
  if (kind == "exit") spelt += ":" + std::to_string(random() % 60);
  if (kind == "slow") spelt += ":2.0";
  if (kind == "bitflip") spelt += ":" + std::to_string(10 + random() % 16);
  SCOPED_TRACE(fmt::format("seed {}: {} on rank {} of {} at step {}", seed, spelt, rank, grid.ranks, step));
  constexpr double patience = 3;
  const Folder folder;
  Words words = Material::get().train(folder.path(), settings(grid));
  words[0] = "run";
  for (const std::string& more :
       {std::string("-n"), std::to_string(grid.ranks), std::string("--launcher"), std::string(GYR_MPIEXEC) + " -disable-auto-cleanup",
        "fault.kind=" + spelt, fmt::format("fault.rank={}", rank), fmt::format("fault.step={}", kind == "slow" ? 1 : step),
        fmt::format("watchdog.seconds={}", patience), std::string("supervise.silent=3"), std::string("supervise.slow_steps=15")})
    words.push_back(more);
  if (kind == "bitflip") words.push_back("train.check_replicas=1");
  const Result r = run(words);
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("FAULT INJECTION"), std::string::npos);

  const auto status = json_in(folder / "supervisor.json");
  EXPECT_TRUE(status.is_object()) << r.out << r.err;
  if (!status.is_object()) return 0;
  const auto& attempt = status["attempts"][0];
  const std::string culprit = attempt["culprit"], named = "rank " + std::to_string(rank);
  if (kind == "slow") {
    EXPECT_EQ(status["restarts"], 0) << status.dump(1);
    EXPECT_TRUE(attempt["slow"].size() == 1 && std::string(attempt["slow"][0]).starts_with(named + " ")) << status.dump(1) << r.out;
  } else {
    EXPECT_EQ(status["restarts"], 1) << status.dump(1) << r.out << r.err;
    EXPECT_NE((culprit + " ").find(named + " "), std::string::npos) << culprit << "\n" << r.out << r.err;
    EXPECT_GE(status["attempts"][1]["from"], std::max(0, (step - 1) / save_every * save_every));  // only the steps since the last save are lost
  }
  expect_bitwise_equal_runs(undisturbed(grid), folder.path(), kind == "slow" ? slow_steps : steps);
  const double pause = longest_pause(folder.path());
  EXPECT_LE(pause, patience + 5 + restart_seconds) << status.dump(1);
  return pause;
}

void damage_trial(Damage how, unsigned seed) {
  std::mt19937 random(seed);
  const Grid& grid = grids_of_eight[random() % std::size(grids_of_eight)];
  const int rank = int(random() % unsigned(grid.ranks)), step = 2 * save_every + 1 + int(random() % save_every);
  SCOPED_TRACE(fmt::format("seed {}: rank {} of {} dies at step {}", seed, rank, grid.ranks, step));
  const Folder folder;
  Words words = Material::get().train(folder.path(), settings(grid));
  Words dying = words;
  for (const std::string& more : {std::string("fault.kind=kill"), fmt::format("fault.rank={}", rank), fmt::format("fault.step={}", step)})
    dying.push_back(more);
  EXPECT_NE(run(dying, {.ranks = grid.ranks}).code, 0);
  const fs::path newest = newest_of(folder.path());
  ASSERT_EQ(newest.filename(), Material::checkpoint({}, 2 * save_every).filename());
  const auto shards = shards_of(newest);
  ASSERT_EQ(shards.size(), std::size_t(grid.ranks));
  const fs::path& victim = shards[random() % shards.size()];
  damage(victim, how, random);
  words.push_back("--resume");
  const Result r = run(words, {.ranks = grid.ranks});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("skipped checkpoint " + newest.string()), std::string::npos) << r.out;
  EXPECT_NE(r.out.find(victim.filename().string()), std::string::npos) << victim << "\n" << r.out;
  EXPECT_NE(r.out.find(fmt::format("at step {}\n", save_every)), std::string::npos) << r.out;
  expect_bitwise_equal_runs(undisturbed(grid), folder.path(), steps);
}

void full_disk_trial(unsigned seed) {
  std::mt19937 random(seed);
  const Grid& grid = grids_of_eight[random() % std::size(grids_of_eight)];
  const std::size_t rank = random() % unsigned(grid.ranks);
  const auto of_a_save = fs::file_size(shards_of(newest_of(undisturbed(grid))).at(rank));
  const auto space = random() % (steps / save_every * of_a_save);
  SCOPED_TRACE(fmt::format("seed {}: the disk of rank {} of {} takes {} bytes, a save {}", seed, rank, grid.ranks, space, of_a_save));
  const Folder folder;
  Words words = Material::get().train(folder.path(), settings(grid));
  const Result r =
      run(words, {.ranks = grid.ranks,
                  .env = {{"LD_PRELOAD", GYR_FAILING_CALLS}, {"GYR_DISK_SPACE", std::to_string(space)}, {"GYR_DISK_RANK", std::to_string(rank)}}});
  EXPECT_EQ(r.code, 74) << r.out << r.err;
  EXPECT_NE(r.err.find("full disk: "), std::string::npos) << r.err;
  // On rank 0, the index or the manifest may also be the file that does not fit.
  const std::string culprit = rank == 0 ? "/checkpoints/" : fmt::format("/shard_{:05}.h5", rank);
  const Words printed = lines_of(r.err);
  EXPECT_TRUE(std::any_of(printed.begin(), printed.end(), [&](const std::string& line) {
    return line.starts_with("gyrfalcon: ") && line.find(culprit) != std::string::npos && line.find("No space left on device") != std::string::npos;
  })) << r.err;
  const fs::path newest = newest_of(folder.path());
  EXPECT_TRUE(newest.empty() || run({"info", newest, "--check"}).code == 0) << newest;
  words.push_back("--resume");
  const Result next = run(words, {.ranks = grid.ranks});
  EXPECT_EQ(next.code, 0) << next.out << next.err;
  expect_bitwise_equal_runs(undisturbed(grid), folder.path(), steps);
}

}  // namespace gyr::testing
