// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon run DECK -n RANKS: training that is looked after. gyrfalcon ps FOLDER: where every rank of a run stands.
#include <cstdio>
#include <memory>

#include "kernels/base/printable.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/config/run_config.hpp"
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
  return s;
}

}  // namespace

void add_run(Command& app, Action& action) {
  auto a = std::make_shared<SuperviseOptions>();
  Command* c = app.add_command("run", "Train under a supervisor that restarts the run from its newest checkpoint when ranks die or hang");
  c->add_option("deck", a->deck, "Input deck (YAML)")->required();
  c->add_option("overrides", a->overrides, "Changes to the deck, as in train.steps=10");
  c->add_option("-n,--ranks", a->ranks, "MPI ranks")->required()->positive();
  c->add_option("--launcher", a->launcher,
                "mpiexec, srun, none (one rank), or any words that take -n RANKS PROGRAM; without it the mpiexec of this program's MPI");
  c->add_option(
       "--spares", a->spares,
       "Ranks that can be lost and replaced; beyond that the data axis shrinks and the batch stays. Without it any number. Where one of several "
       "hosts loses a rank in two attempts in a row, the second before anything is saved, the axis shrinks until something is")
      ->not_negative();
  c->add_flag("--accept-changes", a->accept_changes, "Go on though keys of the deck have changed that make the model compute something else");
  c->add_flag("--take-over", a->take_over,
              "Take the output folder from a run on another machine without waiting for a sign of life of it (output.lock_seconds)");
  c->footer(
      "\nThe launcher starts `gyrfalcon train DECK --resume`. SIGTERM, SIGUSR1 and SIGINT are handed on. OUTPUT/supervisor.json tells of every "
      "attempt,\n"
      "OUTPUT/exit_record.ATTEMPT.json of the process that ended one, keys supervise.* of the deck set the limits. The exit code is that of the last "
      "attempt.\n\n" +
      exit_codes());
  c->callback([a, &action] {
    action = [a] {
      int code = 0;
      const int failed = guarded([&] {
        Deck deck = Deck::read(a->deck, a->overrides);
        const RunConfig run = read_run_config(deck);
        deck.finish();
        a->program = std::filesystem::read_symlink("/proc/self/exe");
        code = supervise(supervised(run), *a);
      });
      if (failed != 0) std::printf("%s\n", last_line(Exit(failed)).c_str());
      return failed != 0 ? failed : code;
    };
  });
}

void add_ps(Command& app, Action& action) {
  auto folder = std::make_shared<std::string>();
  Command* c = app.add_command("ps", "Where every rank of a run stands, from its heartbeats");
  c->add_option("folder", *folder, "Output folder of the run, or its heartbeat.bin")->required();
  c->callback([folder, &action] {
    action = [folder] {
      return guarded([&] {
        const std::filesystem::path path = std::filesystem::is_directory(*folder) ? heartbeat_path(*folder) : std::filesystem::path(*folder);
        require(std::filesystem::exists(path), Exit::missing, "{}: there is none; a run writes it into its output folder", path.string());
        const auto beats = read_heartbeats(path);
        require(!beats.empty(), Exit::data, "{}: no heartbeat can be read in it", path.string());
        std::printf("%s", heartbeat_table(beats, wall_nanoseconds()).c_str());
        const auto outcome = read_outcome(path.parent_path());
        if (outcome && outcome->state == "running" && !any_rank_alive(beats, wall_nanoseconds()))
          std::printf("state: killed: it has said nothing of its end, and no rank gives a sign of life\n");
        else if (outcome)
          std::printf("state: %s%s%s\n", printable(outcome->state).c_str(), outcome->message.empty() ? "" : ": ",
                      printable(outcome->message).c_str());
      });
    };
  });
}

}  // namespace gyr
