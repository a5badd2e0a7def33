// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon verify DECK [-n RANKS]: checks on this machine that a parallel layout computes the same as one rank, before
// a long run starts.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "kernels/comm/mpi/launched.hpp"
#include "src/base/limits.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/commands/planned_deck.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/summary.hpp"
#include "src/supervisor/launcher.hpp"
#include "src/verify/verify.hpp"

namespace gyr {

namespace {

struct VerifyArguments : DeckArguments {
  std::string launcher;
  int ranks = 0;
};

// Replaces this process by the launcher, which starts the ranks with the same command without -n.
[[noreturn]] void launch(const VerifyArguments& a) {
  Words program{std::filesystem::read_symlink("/proc/self/exe"), "verify", a.deck};
  program.insert(program.end(), a.overrides.begin(), a.overrides.end());
  if (!a.init_from.empty()) program.insert(program.end(), {"--init-from", a.init_from});
  Words command = launch_command(a.launcher, a.ranks, program, WhenOneDies::all_end);
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  fail(Exit::device, "{} cannot be started: {}; name another launcher with --launcher", command[0], std::strerror(errno));
}

int verify(const VerifyArguments& a) {
  if (a.ranks > 0 && !is_launched()) {
    const int failed = guarded([&] { launch(a); });
    std::printf("%s\n", last_line(Exit(failed)).c_str());
    return failed;
  }
  const auto begin = std::chrono::steady_clock::now();
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        const double start = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        require(a.ranks == 0 || a.ranks == runtime.ranks(), Exit::usage, "-n {}, but the launcher has started {} ranks; leave -n out", a.ranks,
                runtime.ranks());
        const PlannedDeck deck = read_planned_deck(a, runtime, runtime.ranks());
        if (runtime.rank() == 0)
          std::printf("%s\n%s", banner(version(), build_facts()).c_str(), deck.notes.empty() ? "" : (deck.notes + "\n").c_str());
        verify(deck.run, start, runtime.world());
      },
      LastLine::always);
}

}  // namespace

void add_verify(Command& app, Action& action) {
  auto a = std::make_shared<VerifyArguments>();
  Command* c =
      app.add_command("verify", "Check on this machine that a deck's parallel layout computes the same as one rank, and measure the machine");
  add_deck(*c, *a);
  c->add_option("-n,--ranks", a->ranks, "MPI ranks to start; default: the ranks that mpiexec or srun has started")->between(1, double(most_ranks));
  c->add_option("--launcher", a->launcher,
                "With -n: mpiexec, srun, none (one rank), or any command that takes -n RANKS PROGRAM; default: the mpiexec of this program's MPI");
  c->footer(
      "\nThe deck is reduced to a small model with the same layout, which keeps its divisions, remainders and replicated weights. No token files "
      "are read. A step in fp64 and in fp32 (also in bf16 if the deck uses it) and the loss after its update are compared with those of one rank. "
      "Limits are 1e-12 for fp64 and 1e-5 for fp32 (2e-5 for fp32 gradients of A_log and dt_bias). Exit code 81 means a larger difference. A "
      "layout that `train` rejects is rejected here too. Then communicators, links between neighbours and ranks are measured. The watchdog ends a "
      "hang, as in a run.\n"
      "    gyrfalcon verify DECK -n 4                      # starts 4 ranks here\n"
      "    srun gyrfalcon verify DECK parallel.tensor=4    # inside a job: the ranks that srun or mpiexec starts\n"
      "Keys of the deck: gyrfalcon keys.\n\n" +
      exit_codes());
  c->callback([a, &action] { action = [a] { return verify(*a); }; });
}

}  // namespace gyr
