// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon run DECK -n RANKS: training under a supervisor. gyrfalcon ps FOLDER: state of every rank of a run.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/base/printable.hpp"
#include "kernels/comm/mpi/launched.hpp"
#include "src/base/limits.hpp"
#include "src/base/runs_near.hpp"
#include "src/checkpoint/chosen_checkpoint.hpp"
#include "src/checkpoint/header.hpp"
#include "src/checkpoint/run_identity.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/config/run_config.hpp"
#include "src/job/run_lock.hpp"
#include "src/report/summary.hpp"
#include "src/supervisor/supervisor.hpp"
#include "src/watch/heartbeat.hpp"
#include "src/watch/outcome.hpp"

namespace gyr {

namespace {

SupervisedRun supervised(const RunConfig& run) {
  SupervisedRun s{run.output,
                  run.supervise,
                  run.watch.lock_patience,
                  run.train.walltime,
                  run.parallel.model_ranks(),
                  run.parallel.data_grain(),
                  !run.parallel.permutation.empty() || !run.parallel.islands.empty(),
                  {},
                  run.train.micro_batch_size};
  for (const BatchStep& step : run.train.batches()) s.batches.push_back(step.batch);
  if (run.train.branch && newest_step_of_run(run.output) == 0) s.begin = read_header(chosen_checkpoint(run.train.init_from)).step;
  return s;
}

// State of a run that recorded no end and whose ranks send no heartbeats.
std::string killed_text(const std::vector<Heartbeat>& beats) {
  std::int64_t newest = 0, step = 0;
  for (const Heartbeat& h : beats) newest = std::max(newest, h.written), step = std::max<std::int64_t>(step, h.step);
  const double seconds = double(wall_nanoseconds() - newest) * 1e-9;
  return fmt::format("state: killed (no final record, {}; last at step {})",
                     seconds < 2 ? "its processes are gone" : fmt::format("no heartbeat for {:.0f} s", seconds), step);
}

}  // namespace

void add_run(Command& app, Action& action) {
  auto a = std::make_shared<SuperviseOptions>();
  Command* c = app.add_command("run", "Train under a supervisor that restarts the run from its newest checkpoint when ranks die or hang");
  c->add_option("deck", a->deck, "Input deck (YAML)")->required();
  c->add_option("overrides", a->overrides, "Overrides of deck keys, as in train.steps=10");
  c->add_option("-n,--ranks", a->ranks, "MPI ranks")->required()->between(1, double(most_ranks));
  c->add_option("--launcher", a->launcher,
                "mpiexec, srun, none (one rank), or any command that takes -n RANKS PROGRAM; default: the mpiexec of this program's MPI");
  c->add_option("--spares", a->spares,
                "Number of lost ranks that can be replaced; after that the data axis shrinks and the global batch stays. Default: any number. With "
                "several hosts it also shrinks if one host loses a rank in two attempts in a row without a new checkpoint, until one is saved")
      ->not_negative();
  c->add_flag("--accept-changes", a->accept_changes, "Continue even if changed deck keys make the model compute a different function");
  c->add_flag("--take-over", a->take_over,
              "Take over the output folder of a run on another machine at once, without waiting output.lock_seconds for a sign of life");
  c->footer(
      "\nThe launcher starts `gyrfalcon train DECK --resume`. SIGTERM, SIGUSR1 and the first SIGINT are forwarded to it, SIGHUP as SIGUSR1. "
      "OUTPUT/supervisor.json records every attempt, OUTPUT/exit_record.ATTEMPT.json the first rank that ended without a message. Deck keys "
      "supervise.* set "
      "the limits. The exit code is that of the last attempt.\n\n" +
      exit_codes());
  c->callback([a, &action] {
    action = [a] {
      int code = 0;
      const int failed = guarded([&] {
        require(!is_one_of_several(), Exit::device,
                "gyrfalcon run starts its ranks itself; start it once, without mpiexec or srun, as in `gyrfalcon run DECK -n 2`");
        Deck deck = Deck::read(a->deck, a->overrides);
        const RunConfig run = read_run_config(deck);
        deck.finish();
        if (a->launcher == "none") require_own_launcher(1);  // every attempt would fail alike
        a->program = std::filesystem::read_symlink("/proc/self/exe");
        code = supervise(supervised(run), *a);
      });
      if (failed != 0) std::printf("%s\n", last_line(Exit(failed)).c_str());
      return failed != 0 ? failed : code;
    };
  });
}

namespace {

// Prints the state of a run whose ranks have sent no heartbeat in this attempt. `about`: remark on the heartbeats.
void print_start(const char* state, const std::string& holder, const char* about) {
  std::printf("state: %s (%s; %s)\n", state, holder.c_str(), about);
}

// True if one of these ranks is the process that holds the folder.
bool sent_by(const std::string& holder, const std::vector<Heartbeat>& beats) {
  return std::any_of(beats.begin(), beats.end(), [&](const Heartbeat& h) {
    const std::string process = fmt::format("process {} on {}", h.pid, host_of(h));
    return holder == process || holder.starts_with(process + ",");
  });
}

// Prints the state of a run that has no living ranks, but a process that holds its folder. The supervisor is alone between
// two attempts.
void print_pause(const std::filesystem::path& folder, const std::optional<Outcome>& outcome, const std::string& holder,
                 const std::vector<Heartbeat>& beats) {
  const std::string supervisor = RunLock::living_holder_of(folder / RunLock::of_supervisor);
  const bool ended = outcome && (outcome->state == "done" || outcome->state == "stopped");
  const bool restarts = !supervisor.empty() && !ended;
  if (!restarts && sent_by(holder, beats)) return print_start("ending", holder, "its ranks send no more heartbeats");
  print_start(restarts ? "restarting" : "starting", restarts ? supervisor : holder, "the heartbeats are those of an earlier attempt");
}

void show_ranks(const std::filesystem::path& given) {
  const std::filesystem::path path = std::filesystem::is_directory(given) ? heartbeat_path(given) : given, folder = path.parent_path();
  const std::string holder = RunLock::living_holder(folder);
  if (!std::filesystem::exists(path) && !holder.empty()) return print_start("starting", holder, "its ranks have sent no heartbeat yet");
  require(std::filesystem::exists(given) || given.filename() == "heartbeat.bin", Exit::missing, "{}: no such folder{}", given.string(),
          runs_near(given));
  require(std::filesystem::exists(path), Exit::missing,
          "{}: has no heartbeats (heartbeat.bin), so that no run has begun in it{}; the log, or supervisor.json of `gyrfalcon run`, states why a "
          "start was "
          "refused",
          folder.string(), runs_near(folder));
  const auto beats = read_heartbeats(path);
  require(!beats.empty(), Exit::data, "{}: contains no readable heartbeat", path.string());
  std::printf("%s", heartbeat_table(beats, wall_nanoseconds()).c_str());
  const auto outcome = read_outcome(folder);
  const bool lives = any_rank_alive(beats, wall_nanoseconds(), RunLock::shares_processes(folder));
  if (!lives && !holder.empty()) return print_pause(folder, outcome, holder, beats);
  if (outcome && outcome->state == "running" && !lives) std::printf("%s\n", killed_text(beats).c_str());
  else if (outcome)
    std::printf("state: %s%s%s\n", printable(outcome->state).c_str(), outcome->message.empty() ? "" : ": ", printable(outcome->message).c_str());
}

}  // namespace

void add_ps(Command& app, Action& action) {
  auto folder = std::make_shared<std::string>();
  Command* c = app.add_command("ps", "Show the state of every rank of a run, from its heartbeats");
  c->add_option("folder", *folder, "Output folder of the run, or its heartbeat.bin")->required();
  c->callback([folder, &action] { action = [folder] { return guarded([&] { show_ranks(*folder); }); }; });
}

}  // namespace gyr
