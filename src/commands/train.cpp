// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon train DECK [key=value ...], and gyrfalcon plan DECK: what it would take.
#include <cstdio>
#include <memory>

#include "modules/flops.hpp"
#include "src/bounds.hpp"
#include "src/commands/command.hpp"
#include "src/commands/notes.hpp"
#include "src/commands/plan_report.hpp"
#include "src/precision.hpp"
#include "src/pretrained.hpp"
#include "src/report/summary.hpp"
#include "src/runtime.hpp"
#include "src/trainer.hpp"
#include "src/watch/keeper.hpp"
#include "src/watch/outcome.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

struct Arguments {
  std::string deck, init_from, obituary;
  std::vector<std::string> overrides;
  bool resume = false, take_over = false, dry_run = false;
  int ranks = 0, life = 0;
};

// --help lists what the deck may say; it is made from the declarations themselves.
void describe_deck(Command& command) {
  command.footer([] {
    Deck deck = Deck::describe();
    read_run_config(deck);
    return "\nKeys of the deck, each also possible as key=value on the command line:\n\n" + deck.help() +
           "\nMFU = 3 x forward flops per token x tokens per second / (ranks x peak): attention over the causal half, the SSM as a plain\n"
           "recurrence, nothing recomputed; the peak of a CPU rank is its matrix-product rate, measured at start.\n";
  });
}

void add_deck(Command& command, Arguments& a) {
  command.add_option("deck", a.deck, "Input deck (YAML)")->required();
  command.add_option("--init-from", a.init_from,
                     "Hugging Face folder or checkpoint (.h5) whose weights a new run starts from (train.init_from)");
  command.add_option("overrides", a.overrides, "Changes to the deck, as in parallel.tensor=2 train.steps=10");
  describe_deck(command);
}

RunConfig read(const Arguments& a, const Runtime& runtime, std::string& effective) {
  std::vector<std::string> overrides = a.overrides;
  if (!a.init_from.empty()) overrides.push_back("train.init_from=" + a.init_from);
  Deck deck = Deck::read(a.deck, overrides);
  const std::string from = read_init_from(deck);
  RunDefaults defaults;
  if (!from.empty()) {
    defaults = defaults_of(from, notes_of(runtime));
    defaults.precision = RunDefaults().precision;  // how to compute is the deck's matter
    defaults.length = RunDefaults().length;
  }
  RunConfig run = read_run_config(deck, defaults);
  deck.finish();
  effective = deck.effective();
  return run;
}

int plan(const Arguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        std::string effective;
        const RunConfig run = read(a, runtime, effective);
        const int model_ranks = run.parallel.pipeline * run.parallel.tensor * std::max(1, run.parallel.data);
        const int ranks = a.ranks > 0 ? a.ranks : runtime.ranks() > 1 ? runtime.ranks() : model_ranks;
        const std::string text = plan_report(run, ranks);
        if (runtime.rank() == 0) std::printf("%s", text.c_str());
      },
      true);
}

// Has the first rank leave the outcome in status.json of the output folder, whatever it is.
void with_outcome(const RunConfig& run, Runtime& runtime, const std::function<void()>& body) {
  const auto say = [&](const char* state, Exit code, const std::string& message) {
    std::error_code ignored;
    if (runtime.rank() != 0 || !std::filesystem::is_directory(run.output, ignored)) return;
    const auto beats = read_heartbeats(heartbeat_path(run.output));
    write_outcome(run.output, {state, int(code), beats.empty() ? 0 : beats.front().step, -1, message});
  };
  say("running", Exit::ok, "");
  try {
    body();
  } catch (const Error& error) {
    say(error.code == Exit::again ? "stopped" : "failed", error.code, error.what());
    throw;
  } catch (const std::exception& error) {
    say("failed", Exit::internal, error.what());
    throw;
  }
  say("done", Exit::ok, "");
}

int train(const Arguments& a) {
  if (a.dry_run) return plan(a);
  const StopSignals signals;  // before MPI, so that none of them ends a run while it starts
  Kept kept(a.obituary);
  const int code = run_on_all_ranks(
      [&](Runtime& runtime) {
        signals.claim();
        std::string effective;
        const RunConfig run = read(a, runtime, effective);
        if (runtime.rank() == 0) {
          std::printf("%s\n", banner(version(), build_facts()).c_str());
          if (run.fault.any()) std::printf("%s\n\n", describe(run.fault).c_str());
          std::fflush(stdout);
        }
        const TrainOptions options{a.resume, a.take_over, a.life};
        with_outcome(run, runtime, [&] {
          with_scalar(run.train.precision, [&]<class T>(std::type_identity<T>) { train<T>(run, effective, options, runtime.world()); });
        });
      },
      true);
  kept.agreed();
  return code;
}

}  // namespace

void add_train(Command& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  Command* command = app.add_command("train", "Train a model as a deck says");
  add_deck(*command, *a);
  command->add_flag("--resume", a->resume, "Go on from the newest whole checkpoint of the output folder");
  command->add_flag("--take-over", a->take_over, "Use the output folder though a run on another machine seems to; make sure that it has ended");
  command->add_flag("--dry-run", a->dry_run, "Print memory, flops and traffic of every rank and stop");
  command->add_option("--ranks", a->ranks, "With --dry-run: ranks of the run to be planned")->between(1, double(most_ranks));
  command->add_option("--life", a->life, "Which start of the run this is, as gyrfalcon run and Slurm count them; heartbeats and fault.life name it")
      ->from_environment("SLURM_RESTART_COUNT")->not_negative();
  command->add_option("--obituary", a->obituary, "Have a process of its own watch over each rank; that of the first one that ends without having said why writes this file (gyrfalcon run)");
  command->callback([a, &action] { action = [a] { return train(*a); }; });
}

void add_plan(Command& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  Command* command = app.add_command("plan", "Print memory, flops and traffic of a run without running it (train --dry-run)");
  add_deck(*command, *a);
  command->add_option("--ranks", a->ranks, "Ranks of the run; without it as many as the deck's grid has")->between(1, double(most_ranks));
  command->callback([a, &action] { action = [a] { return plan(*a); }; });
}

}  // namespace gyr
