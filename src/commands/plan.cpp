// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/plan.hpp"

#include <signal.h>

#include <cstdio>
#include <optional>

#include "src/base/limits.hpp"
#include "src/commands/command.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/runtime.hpp"

namespace gyr {

namespace {

std::optional<Machine> machine_of(const PlanArguments& a) {
  if (a.cluster.empty()) return {};
  Machine machine{read_cluster(a.cluster), {}};
  if (!a.profile.empty()) machine.profile = Profile::read(a.profile);
  return machine;
}

}  // namespace

int plan(const PlanArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        ::signal(SIGHUP, SIG_DFL);  // to UCX, below MPI, it says to log more; a plan has nothing to lose and ends with its terminal
        std::string effective;
        const RunConfig run = read_deck(a, runtime, effective);
        const std::optional<Machine> machine = machine_of(a);
        const std::string text = plan_report(run, planned_ranks(run, a.ranks, runtime), machine ? &*machine : nullptr, a.tokens);
        if (runtime.rank() == 0) std::printf("%s", text.c_str());
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
  command->callback([a, &action] { action = [a] { return plan(*a); }; });
}

}  // namespace gyr
