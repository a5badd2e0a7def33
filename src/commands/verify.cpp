// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon verify DECK [-n RANKS]: whether a layout computes here what one rank does, before a long run is paid for.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

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

// Started by mpiexec or srun, as one rank of several perhaps. (SLURM_PROCID is set in batch scripts too.)
bool is_rank() { return std::getenv("PMI_RANK") || std::getenv("PMIX_RANK") || std::getenv("OMPI_COMM_WORLD_RANK"); }

// This process becomes the launcher of ranks that do the same without -n.
[[noreturn]] void launch(const VerifyArguments& a) {
  Words program{std::filesystem::read_symlink("/proc/self/exe"), "verify", a.deck};
  program.insert(program.end(), a.overrides.begin(), a.overrides.end());
  if (!a.init_from.empty()) program.insert(program.end(), {"--init-from", a.init_from});
  Words command = launch_command(a.launcher, a.ranks, program, WhenOneDies::all_end);
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  fail(Exit::usage, "{} cannot be started: {}; name another launcher with --launcher", command[0], std::strerror(errno));
}

int verify(const VerifyArguments& a) {
  if (a.ranks > 0 && !is_rank()) {
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
      true);
}

}  // namespace

void add_verify(Command& app, Action& action) {
  auto a = std::make_shared<VerifyArguments>();
  Command* c = app.add_command("verify", "Prove on this machine that a deck's layout computes what one rank does, and measure the machine");
  add_deck(*c, *a);
  c->add_option("-n,--ranks", a->ranks, "MPI ranks to start; without it, inside mpiexec or srun, the ranks there are")
      ->between(1, double(most_ranks));
  c->add_option("--launcher", a->launcher,
                "With -n: mpiexec, srun, none (one rank), or any words that take -n RANKS PROGRAM; without it the mpiexec of this program's MPI");
  c->footer(
      "\nThe deck is made small, with the same layout and all cases of what divides, what is left over and who holds copies; no token files are "
      "read.\n"
      "A step in double and in float (bf16 too where the deck is in bf16) and the loss behind its update are compared with one rank's: at most "
      "1e-12\n"
      "and 1e-5 apart, gradients of A_log and dt_bias in float 2e-5. Code 81 where they are further apart; what `train` refuses is refused as "
      "there.\n"
      "Then communicators, links between neighbours and ranks are measured. A hang is ended by the watchdog, as a run.\n"
      "    gyrfalcon verify DECK -n 8                      # starts 8 ranks here\n"
      "    srun gyrfalcon verify DECK parallel.tensor=4    # inside a job: the ranks that srun or mpiexec starts\n"
      "Keys of the deck: gyrfalcon train --help.\n\n" +
      exit_codes());
  c->callback([a, &action] { action = [a] { return verify(*a); }; });
}

}  // namespace gyr
