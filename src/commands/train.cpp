// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon train DECK [key=value ...].
#include <signal.h>

#include <cstdio>
#include <memory>

#include "kernels/base/printable.hpp"
#include "kernels/base/threads.hpp"
#include "modules/cost/flops.hpp"
#include "src/base/limits.hpp"
#include "src/commands/command.hpp"
#include "src/commands/plan.hpp"
#include "src/commands/planned_deck.hpp"
#include "src/commands/runtime.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/summary.hpp"
#include "src/train/trainer.hpp"
#include "src/watch/rank_watcher.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

struct TrainArguments : PlanArguments {
  std::string exit_record, supervisor;
  bool resume = false, anew = false, accept_changes = false, take_over = false, dry_run = false, replan = false;
  int attempt = 0;
};

// Has the outcome left in the output folder, whatever it is, once the run has the folder.
void with_outcome(RunFolder& folder, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    folder.say(error.code == Exit::again ? "stopped" : "failed", int(error.code), error.what());
    throw;
  } catch (const std::exception& error) {
    folder.say("failed", int(Exit::internal), error.what());
    throw;
  }
  folder.say("done", int(Exit::ok), "");
}

int train(const TrainArguments& a) {
  if (a.dry_run) return plan(a);
  const StopSignals signals;  // before MPI, so that none of them ends a run while it starts
  Kept kept(a.exit_record);
  const int code = run_on_all_ranks(
      [&](Runtime& runtime) {
        const PlannedDeck deck = read_planned_deck(a, runtime, runtime.ranks(), a.resume && !a.replan ? Replan::unless_resumed : Replan::always);
        const RunConfig& run = deck.run;
        if (runtime.rank() == 0) {
          auto facts = build_facts();
          facts.emplace_back("threads", threads_text());
          std::printf("%s\n", banner(version(), facts).c_str());
          if (!deck.notes.empty()) std::printf("%s\n", printable_lines(deck.notes).c_str());
          if (run.fault.any()) std::printf("%s\n\n", describe(run.fault).c_str());
          std::fflush(stdout);
        }
        RunFolder folder;
        const TrainOptions options{a.resume, a.anew, a.accept_changes, a.take_over, a.attempt, a.supervisor, &folder, deck.expected};
        with_outcome(folder, [&] { train(run, deck.effective, options, runtime.world()); });
      },
      true);
  kept.agreed();
  return code;
}

}  // namespace

void add_train(Command& app, Action& action) {
  auto a = std::make_shared<TrainArguments>();
  Command* command = app.add_command("train", "Train a model as a deck says");
  add_deck(*command, *a);
  describe_deck(*command);
  command->add_flag("--resume", a->resume,
                    "Go on from the newest whole checkpoint of the run that the output folder belongs to; begin where there is none");
  command->add_flag("--anew", a->anew,
                    "Begin another run in a folder where one has left checkpoints: they and its logs are moved to OUTPUT/set_aside/RUN");
  command->add_flag("--accept-changes", a->accept_changes,
                    "With --resume: go on though keys of the deck have changed that make the model compute something else");
  command->add_flag("--take-over", a->take_over,
                    "Take the output folder from a run on another machine without waiting for a sign of life of it (output.lock_seconds)");
  command->add_flag("--replan", a->replan,
                    "With --resume, and parallel.plan or activation.alpha auto: find them again, instead of going on with those of the checkpoint");
  command->add_flag("--dry-run", a->dry_run, "Print memory, flops and traffic of every rank and stop");
  command->add_option("--ranks", a->ranks, "With --dry-run: ranks of the run to be planned")->between(1, double(most_ranks));
  command
      ->add_option("--attempt", a->attempt,
                   "Which start of the run this is, as gyrfalcon run and Slurm count them; heartbeats and fault.attempt name it")
      ->from_environment("SLURM_RESTART_COUNT")
      ->not_negative();
  command->add_option(
      "--exit-record", a->exit_record,
      "Have a process of its own watch over each rank; that of the first one that ends without having said why writes this file (gyrfalcon run)");
  command->add_option("--supervisor", a->supervisor, "Token in OUTPUT/supervisor.lock of the gyrfalcon run that starts this run");
  command->callback([a, &action] {
    require(!(a->resume && a->anew), Exit::usage, "--resume goes on with the run that --anew would set aside; give one of them");
    action = [a] { return train(*a); };
  });
}

}  // namespace gyr
