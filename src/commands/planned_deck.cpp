// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/planned_deck.hpp"

#include <sstream>

#include "kernels/mpi/transport.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/header.hpp"
#include "src/commands/search_report.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/train/run_paths.hpp"

namespace gyr {

namespace {

// What the first rank decides, as it tells the others.
struct Decision {
  std::vector<std::string> lines;  // of the deck
  Expectation expected;
  bool found = false;  // by a search, which `expected` is from
  std::string notes;

  std::string packed() const {
    std::string text = fmt::format("{} {:.17g} {}", int(found), expected.seconds, expected.bytes);
    for (const std::string& line : lines) text += '\n' + line;
    return text;
  }
  static Decision of(const std::string& packed) {
    Decision d;
    std::istringstream in(packed);
    in >> d.found >> d.expected.seconds >> d.expected.bytes;
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) d.lines.push_back(line);
    return d;
  }
};

// The layout that the newest checkpoint was saved under, of so many ranks.
std::optional<Decision> of_checkpoint(const RunConfig& run, int ranks) {
  const auto newest = newest_checkpoint(checkpoints_of(run));
  if (!newest) return {};
  const std::string name = newest->filename().string();
  try {
    Deck deck = Deck::stored(read_header(*newest).deck, name);
    const RunConfig stored = read_run_config(deck);
    Decision d;
    d.lines = deck_lines(choice_of(stored, layout_of(stored, ranks)), run.parallel.keep);
    d.notes = fmt::format("parallel.plan = auto: the layout of {} stays; --replan searches again", name);
    return d;
  } catch (const Error& e) {
    if (e.code != Exit::config) throw;
    return {};  // of other ranks, or of a model that resuming will refuse
  }
}

Decision searched(const RunConfig& run, int ranks, const Machine* given) {
  const std::optional<Machine> machine = given ? *given : machine_of(run, "", "");
  require(machine.has_value(), Exit::config,
          "parallel.plan = auto needs to know the machine; name its description as parallel.cluster: input/clusters/ has some, and mpiexec -n N "
          "gyrfalcon probe --out FILE measures this one");
  const SearchResult result = search(run, ranks, machine->cluster, machine->profile ? &*machine->profile : nullptr, 1);
  require_found(result, ranks, machine->cluster);
  const FoundLayout& best = result.best.front();
  Decision d;
  d.found = true;
  d.lines = deck_lines(best.choice, run.parallel.keep);
  d.expected = {best.prediction.seconds, best.bytes};
  d.notes = fmt::format("parallel.plan = auto, on {}: {}\nfastest: {}, micro-batches of {}, recompute {}, shard {}; {:.4g} s a step",
                        machine->cluster.name, search_summary(result), best.choice.text(), best.choice.micro_batch_size,
                        recompute_names[best.choice.recompute], name_of(best.choice.shard), best.prediction.seconds);
  return d;
}

}  // namespace

std::optional<Machine> machine_of(const RunConfig& run, const std::string& cluster, const std::string& profile) {
  const std::string file = !cluster.empty() ? cluster : run.parallel.plan == Planning::automatic ? run.parallel.cluster : "";
  if (file.empty()) return {};
  Machine machine{read_cluster(file), {}};
  if (const std::string& times = cluster.empty() ? run.parallel.profile : profile; !times.empty()) machine.profile = Profile::read(times);
  return machine;
}

PlannedDeck read_planned_deck(const DeckArguments& a, const Runtime& runtime, int ranks, Replan replan, const Machine* machine) {
  PlannedDeck deck;
  deck.run = read_deck(a, runtime, deck.effective);
  if (deck.run.parallel.plan == Planning::deck) return deck;
  MPI_Comm all;
  MPI_Comm_dup(runtime.world(), &all);
  Communicator world("world", mpi_transport(all, patience_of(runtime.world())));
  Decision decision;
  collective_check(world, [&] {
    if (runtime.rank() != 0) return;
    const std::optional<Decision> kept = replan == Replan::unless_resumed ? of_checkpoint(deck.run, ranks) : std::nullopt;
    decision = kept ? *kept : searched(deck.run, ranks, machine);
  });
  deck.notes = decision.notes;
  decision = Decision::of(text_of_first(world, decision.packed()));
  DeckArguments settled = a;
  settled.overrides.insert(settled.overrides.end(), decision.lines.begin(), decision.lines.end());
  settled.overrides.push_back("parallel.plan=deck");
  deck.run = read_deck(settled, runtime, deck.effective);
  if (decision.found) deck.expected = decision.expected;
  return deck;
}

}  // namespace gyr
