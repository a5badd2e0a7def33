// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/plan.hpp"

#include <signal.h>

#include <cstdio>
#include <optional>

#include "src/base/limits.hpp"
#include "src/commands/command.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/planned_deck.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/search_report.hpp"

namespace gyr {

namespace {

// The search alone.
std::string explained(const RunConfig& run, int ranks, const std::optional<Machine>& machine) {
  require(machine.has_value(), Exit::usage,
          "--explain searches for the fastest layout on a machine; name its description with --cluster: "
          "input/clusters/ has some, and mpiexec -n N gyrfalcon probe --out FILE measures this one");
  return search_report(run, ranks, machine->cluster, search(run, ranks, machine->cluster, machine->profile ? &*machine->profile : nullptr));
}

}  // namespace

int plan(const PlanArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        ::signal(SIGHUP, SIG_DFL);  // to UCX, below MPI, it says to log more; a plan has nothing to lose and ends with its terminal
        std::string effective;
        const RunConfig asked = read_deck(a, runtime, effective);
        const std::optional<Machine> machine = machine_of(asked, a.cluster, a.profile);
        const int ranks = planned_ranks(asked, a.ranks, runtime);
        if (a.explain) {
          if (runtime.rank() == 0) std::printf("%s", explained(asked, ranks, machine).c_str());
          return;
        }
        const PlannedDeck deck = read_planned_deck(a, runtime, ranks, Replan::always, machine ? &*machine : nullptr);
        const std::string text = plan_report(deck.run, ranks, machine ? &*machine : nullptr, a.tokens);
        if (runtime.rank() != 0) return;
        if (!deck.notes.empty()) std::printf("%s\n\n", deck.notes.c_str());
        std::printf("%s", text.c_str());
      },
      true);
}

void add_plan(Command& app, Action& action) {
  auto a = std::make_shared<PlanArguments>();
  Command* command = app.add_command("plan", "Print memory, flops and traffic of a run without running it (train --dry-run)");
  add_deck(*command, *a);
  describe_deck(*command);
  command->add_option("--ranks", a->ranks, "Ranks of the run; without it as many as the deck's grid has")->between(1, double(most_ranks));
  Option* cluster = command->add_option("--cluster", a->cluster,
                                        "Description of a cluster (input/clusters/, gyrfalcon probe): also predict how long a step takes there");
  command->add_option("--profile", a->profile, "Times of kernels there, as gyrfalcon profile DECK --out FILE measured them")->needs(cluster);
  command->add_option("--tokens", a->tokens, "With --cluster: tokens of the whole training; without it what the deck's steps have")
      ->needs(cluster)
      ->between(1, 1e18);
  command->add_flag("--explain", a->explain,
                    "Instead, search for the fastest layout of so many ranks there: the ten best, why each loses to the first, and what refused the "
                    "others");
  command->callback([a, &action] { action = [a] { return plan(*a); }; });
}

}  // namespace gyr
