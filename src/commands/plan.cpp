// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/plan.hpp"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include "src/base/limits.hpp"
#include "src/base/output_file.hpp"
#include "src/commands/command.hpp"
#include "src/commands/layout_report.hpp"
#include "src/commands/plan_page.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/planned_deck.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/search_report.hpp"
#include "src/planner/machine/run_islands.hpp"

namespace gyr {

namespace {

void write_page(const std::string& name, const std::string& page) {
  OutputFile file(name);
  file.append(page);
  file.commit();
  std::printf("%s: open it in a browser\n", name.c_str());
}

// The search, and with a page also the plan of the layout that it finds.
void explain(const PlanArguments& a, const RunConfig& run, int ranks, const std::optional<Machine>& machine) {
  require(machine.has_value(), Exit::usage,
          "--explain searches for the fastest layout on a machine; name its description with --cluster: "
          "input/clusters/ has some, and mpiexec -n N gyrfalcon probe --out FILE measures this one");
  const SearchResult found = search(run, ranks, machine->cluster, machine->profile ? &*machine->profile : nullptr);
  const std::string text = search_report(run, ranks, machine->cluster, found);  // also says where there is none
  if (a.page.empty()) {
    std::printf("%s", text.c_str());
    return;
  }
  const RunPlan plan(with(on_islands(run, machine->cluster, ranks), found.best.front().choice), ranks);
  write_page(a.page, plan_page(plan, PredictedRun(plan, *machine), *machine, a.tokens, &found));
}

MemoryLimits room_of(const RunConfig& run, const std::optional<Machine>& machine) {
  require(
      run.device_bytes > 0 || machine, Exit::usage,
      "--longest tells how long sequences may be in the memory of a device; say how much there is as memory.device_bytes, or name a description of "
      "the machine with --cluster");
  MemoryLimits room{double(run.device_bytes), std::numeric_limits<double>::infinity()};
  if (machine) room.device = machine->cluster.device.memory;
  if (machine && machine->cluster.host.memory > 0) room.host = machine->cluster.host.memory;
  return room;
}

}  // namespace

int plan(const PlanArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        ::signal(SIGHUP, SIG_DFL);  // to UCX, below MPI, it says to log more; a plan has nothing to lose and ends with its terminal
        std::string effective;
        require(!a.longest || (!a.explain && a.page.empty()), Exit::usage, "--longest stands alone; leave out --explain and --html");
        const bool asks_more = a.explain || a.longest || a.ranks != 0 || a.tokens > 0 || !(a.cluster + a.profile + a.page).empty();
        require(
            !a.explain_layout || !asks_more, Exit::usage,
            "--explain-layout stands alone, for parallel.tensor of the deck; leave out --explain, --longest, --ranks, --cluster, --profile, --tokens "
            "and --html");
        const RunConfig asked = read_deck(a, runtime, effective);
        if (a.explain_layout) {
          if (runtime.rank() == 0) std::printf("%s", layout_report(asked).c_str());
          return;
        }
        const std::optional<Machine> machine = machine_of(asked, a.cluster, a.profile);
        const int ranks = planned_ranks(asked, a.ranks, runtime);
        if (a.explain) {
          if (runtime.rank() == 0) explain(a, asked, ranks, machine);
          return;
        }
        if (a.longest) {
          if (runtime.rank() == 0) std::printf("%s", longest_report(asked, ranks, room_of(asked, machine)).c_str());
          return;
        }
        const PlannedDeck deck = read_planned_deck(a, runtime, ranks, Replan::always, machine ? &*machine : nullptr);
        const RunPlan plan(machine ? on_islands(deck.run, machine->cluster, ranks) : deck.run, ranks);
        std::optional<PredictedRun> predicted;
        if (machine) predicted.emplace(plan, *machine);
        if (runtime.rank() != 0) return;
        if (!deck.notes.empty()) std::printf("%s\n\n", deck.notes.c_str());
        if (a.page.empty()) std::printf("%s", plan_report(plan, predicted ? cluster_report(plan, *predicted, *machine, a.tokens) : "").c_str());
        else write_page(a.page, plan_page(plan, *predicted, *machine, a.tokens));
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
  command->add_flag("--explain-layout", a->explain_layout,
                    "Instead, tell how each kind of layer is cut over the tensor axis: operator by operator, with what is sent, and what another way "
                    "would cost");
  command->add_flag("--longest", a->longest,
                    "Instead, tell how long sequences may be in memory.device_bytes, or on a device of --cluster, with each way to keep activations");
  command
      ->add_option("--html", a->page,
                   "With --cluster: write one page that needs no network instead of text: what every stage does when, memory over a step, who sends "
                   "how much to whom, and with --explain the layouts that were found")
      ->needs(cluster);
  command->callback([a, &action] { action = [a] { return plan(*a); }; });
}

}  // namespace gyr
