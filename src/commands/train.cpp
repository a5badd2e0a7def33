// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon train DECK [key=value ...]: trains a model.
#include <signal.h>

#include <cstdio>
#include <memory>

#include "kernels/base/printable.hpp"
#include "kernels/base/threads.hpp"
#include "modules/cost/flops.hpp"
#include "src/base/limits.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/commands/plan.hpp"
#include "src/commands/planned_deck.hpp"
#include "src/commands/runtime.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/progress.hpp"
#include "src/report/summary.hpp"
#include "src/train/trainer.hpp"
#include "src/watch/rank_watcher.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

struct TrainArguments : PlanArguments {
  std::string exit_record, supervisor;
  bool start_over = false, accept_changes = false, take_over = false, dry_run = false, replan = false;
  int attempt = 0;
};

// Runs `body` and writes its outcome (done, stopped or failed) to the output folder, if the run has acquired that
// folder.
void with_outcome(RunFolder& folder, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    folder.write_status(error.code == Exit::again ? "stopped" : "failed", int(error.code), error.what());
    throw;
  } catch (const std::exception& error) {
    folder.write_status("failed", int(code_of(error)), error.what());
    throw;
  }
  folder.write_status("done", int(Exit::ok), "");
}

int train(const TrainArguments& a) {
  if (a.dry_run) return plan(a);
  const StopSignals signals;  // before MPI starts, so that a signal cannot end a run that is starting
  Kept kept(a.exit_record);
  const int code = run_on_all_ranks(
      [&](Runtime& runtime) {
        progress_style(stdout, 1);  // an unknown GYR_PROGRESS is refused before the output folder is taken
        const PlannedDeck deck = read_planned_deck(a, runtime, runtime.ranks(), a.resume && !a.replan ? Replan::unless_resumed : Replan::always);
        const RunConfig& run = deck.run;
        if (runtime.rank() == 0) {
          auto facts = build_facts();
          facts.emplace_back("threads", threads_text());
          std::printf("%s\n%s", banner(version(), facts).c_str(), runtime.thread_advice().c_str());
          if (!deck.notes.empty()) std::printf("%s\n", printable_lines(deck.notes).c_str());
          for (const std::string& remark : remarks_on(run)) std::printf("%s\n", remark.c_str());
          if (run.fault.any()) std::printf("%s\n\n", describe(run.fault).c_str());
          std::fflush(stdout);
        }
        RunFolder folder;
        TrainOptions options{a.resume, a.start_over, a.accept_changes, a.take_over, a.attempt, a.supervisor, &folder, deck.expected};
        options.calls = predicted_calls(run, runtime);
        with_outcome(folder, [&] { train(run, deck.effective, options, runtime.world()); });
      },
      LastLine::always);
  kept.agreed();
  return code;
}

}  // namespace

void add_train(Command& app, Action& action) {
  auto a = std::make_shared<TrainArguments>();
  Command* command = app.add_command("train", "Train a model from an input deck");
  add_deck(*command, *a);
  describe_deck(*command);
  command->add_flag("--resume", a->resume,
                    "Resume the run in the output folder from its newest complete checkpoint; start a new run if there is none");
  command->add_flag(
      "--anew", a->start_over,
      "Start a new run in a folder that has checkpoints; the checkpoints and logs of the earlier run are moved to OUTPUT/set_aside/RUN");
  command->add_flag("--accept-changes", a->accept_changes,
                    "With --resume: continue even if changed deck keys make the model compute a different function");
  command->add_flag("--take-over", a->take_over,
                    "Take over the output folder of a run on another machine at once, without waiting output.lock_seconds for a sign of life");
  command->add_flag("--replan", a->replan,
                    "With --resume and parallel.plan or activation.alpha = auto: search again instead of keeping the choice of the checkpoint");
  command->add_flag("--dry-run", a->dry_run, "Print memory, FLOPs and communication of every rank and exit");
  command->add_option("--ranks", a->ranks, "With --dry-run: number of ranks of the planned run")->between(1, double(most_ranks));
  command
      ->add_option("--attempt", a->attempt,
                   "Attempt number of the run, as gyrfalcon run and Slurm count it from 0; heartbeats record it, fault.attempt compares with it")
      ->from_environment("SLURM_RESTART_COUNT")
      ->not_negative();
  command->add_option(
      "--exit-record", a->exit_record,
      "Start a watcher process for each rank. The watcher of the first rank that ends without a report writes this file (gyrfalcon run)");
  command->add_option("--supervisor", a->supervisor, "Token in OUTPUT/supervisor.lock of the gyrfalcon run process that starts this run");
  command->callback([a, &action] {
    require(a->ranks == 0 || a->dry_run, Exit::usage, "--ranks belongs to --dry-run; start a run on N ranks with mpiexec -n N gyrfalcon train DECK");
    require(!(a->resume && a->start_over), Exit::usage, "--resume continues the run that --anew would set aside; give only one of them");
    action = [a] { return train(*a); };
  });
}

}  // namespace gyr
