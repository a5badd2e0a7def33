// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/planned_deck.hpp"

#include <cstdio>
#include <sstream>

#include "kernels/base/printable.hpp"
#include "kernels/comm/mpi/transport.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/header.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/search_report.hpp"
#include "src/config/generation_ranks.hpp"
#include "src/config/run_advice.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/planner/layouts/offload_fraction.hpp"
#include "src/planner/machine/run_islands.hpp"
#include "src/planner/policy/iteration_times.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/report/transfer.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/feed.hpp"
#include "src/train/run_paths.hpp"

namespace gyr {

namespace {

// Decision of rank 0, sent to the other ranks as text.
struct Decision {
  std::vector<std::string> lines;  // deck overrides, as in "parallel.tensor=4"
  Expectation expected;
  bool found = false;  // true if a search made the decision; `expected` is then its prediction
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

bool finds_layout(const RunConfig& run) { return run.parallel.plan == Planning::automatic; }
bool finds_alpha(const RunConfig& run) { return run.offload.find_alpha; }

std::string alpha_line(double alpha) { return fmt::format("activation.alpha={}", alpha); }

// Choices of the newest checkpoint; none if it has no valid ones for `ranks` ranks.
std::optional<Decision> of_checkpoint(const RunConfig& run, int ranks) {
  const auto newest = newest_checkpoint(checkpoints_of(run));
  if (!newest) return {};
  const std::string name = newest->filename().string();
  try {
    Deck deck = Deck::stored(read_header(*newest).deck, name);
    const RunConfig stored = read_run_config(deck);
    // the checkpoint's run did not offload activations, so there is no activation.alpha to keep
    if (finds_alpha(run) && !stored.offload.on) return {};
    const Layout layout = layout_of(stored, ranks);
    Decision d;
    if (finds_layout(run)) {
      d.lines = deck_lines(choice_of(stored, layout), run.parallel.keep, stored.parallel.islands);
      d.notes = fmt::format("parallel.plan = auto: keeping the layout of {}; --replan searches again", name);
    }
    if (finds_alpha(run)) {
      d.lines.push_back(alpha_line(stored.offload.alpha));
      d.notes += fmt::format("{}activation.alpha = auto: keeping {:g} of {}; --replan searches again", d.notes.empty() ? "" : "\n",
                             stored.offload.alpha, name);
    }
    return d;
  } catch (const Error& e) {
    if (e.code != Exit::config) throw;
    return {};  // the checkpoint has another number of ranks, or a model that the resume will reject
  }
}

Decision searched(const RunConfig& run, int ranks, const Machine& machine) {
  SearchOptions options;
  options.best = 1;
  const SearchResult result = search_with_progress(run, ranks, machine, options);
  require_found(run, result, ranks, machine.cluster);
  const FoundLayout& best = result.best.front();
  Decision d;
  d.found = true;
  d.lines = deck_lines(best.choice, run.parallel.keep, result.islands);
  const RunConfig here = with(run, best.choice);  // memory as this program allocates it, whatever devices the cluster has
  const EngineConfig config = engine_config(here, layout_of(here, ranks));
  d.expected = {best.prediction.seconds, StagePlans(config, layout_of(here, ranks)).largest_rank(config).bytes};
  d.notes = fmt::format("parallel.plan = auto, on {}: {}\nfastest: {}, micro-batches of {}, recompute {}, shard {}; {} per step{}",
                        machine.cluster.name, search_summary(result), best.choice.text(), best.choice.micro_batch_size, recompute_text(best.choice),
                        name_of(best.choice.shard), time_text(best.prediction.seconds), error_bar(run, ranks, machine.cluster));
  return d;
}

Decision shared(const RunConfig& run, int ranks, const Machine& machine) {
  RunConfig planned = run;
  planned.planned_gpu = machine.cluster.device.gpu;
  const OffloadFraction fraction = best_fraction(planned, layout_of(run, ranks), machine.cluster, machine.profile ? &*machine.profile : nullptr);
  Decision d;
  d.lines = {alpha_line(fraction.alpha)};
  d.notes = fmt::format("activation.alpha = auto, on {}: {:g}, predicted step time {}{}", machine.cluster.name, fraction.alpha,
                        time_text(fraction.seconds), fraction.alpha == fraction.most && fraction.most < 1 ? "; host memory allows no more" : "");
  return d;
}

// Warning for a run that decides with the description of devices that this machine does not have; otherwise empty.
std::string foreign_devices_text(const Cluster& cluster) {
  if (cluster.device.gpu == backend::on_gpu()) return "";
  return fmt::format(
      "\nwarning: parallel.cluster describes {} ({}), but this program computes on {}. The choice may be slow here; describe this machine with "
      "mpiexec -n N gyrfalcon probe --out FILE",
      cluster.device.gpu ? "GPUs" : "hosts without GPUs", cluster.name.empty() ? "no name" : cluster.name, backend::on_gpu() ? "GPUs" : "CPUs");
}

Decision found(const RunConfig& run, int ranks, const Machine* given) {
  const std::optional<Machine> machine = given ? *given : machine_of(run, "", "");
  require(
      machine.has_value(), Exit::config,
      "{} = auto needs a description of the machine; set parallel.cluster to its file: input/clusters/ has some, and mpiexec -n N gyrfalcon probe "
      "--out FILE measures this one",
      finds_layout(run) ? "parallel.plan" : "activation.alpha");
  Decision d = finds_layout(run) ? searched(run, ranks, *machine) : shared(run, ranks, *machine);
  if (!given) d.notes += foreign_devices_text(machine->cluster);
  return d;
}

}  // namespace

std::vector<std::string> remarks_on(const RunConfig& run) {
  std::vector<std::string> remarks;
  for (const std::string& warning : doubtful_settings(run)) remarks.push_back("warning: " + warning);
  if (const std::string warning = doubtful_order(run); !warning.empty()) remarks.push_back("warning: " + warning);
  if (const std::string why = refusal_of_adapters(run); !why.empty()) remarks.push_back("note: " + why);
  return remarks;
}

namespace {

Machine read_machine(const RunConfig& run, const std::string& cluster, const std::string& profile) {
  Machine machine{read_cluster(cluster), {}};
  if (run.device_bytes > 0) machine.cluster.limit_memory(double(run.device_bytes));
  if (profile.empty()) return machine;
  machine.profile = Profile::read(profile);
  machine.cluster.errors = {};  // they judge the constants of the cluster file
  return machine;
}

}  // namespace

std::optional<Machine> machine_of(const RunConfig& run, const std::string& cluster, const std::string& profile) {
  if (!cluster.empty()) return read_machine(run, cluster, profile);
  if (run.parallel.cluster.empty() || (!finds_layout(run) && !finds_alpha(run))) return {};
  return read_machine(run, run.parallel.cluster, run.parallel.profile);
}

namespace {

CallSeconds calls_on(const Machine& machine, const RunConfig& run, int ranks) {
  const RunConfig here = on_cluster(run, machine.cluster, ranks);
  const Layout layout = layout_of(here, training_ranks(here, ranks).size());
  const IterationTimes times = iteration_times(here, layout, {machine.cluster, machine.profile ? &*machine.profile : nullptr});
  CallSeconds calls{.generate = times.seconds(CallPart::generation), .move = times.seconds(CallPart::move)};
  for (const PlannedCall& call : times.calls)
    if (call.trains) calls.train += call.seconds;
    else if (call.part == CallPart::others) calls.score += call.seconds;
  if (times.overlaps) calls.generate = times.seconds() - calls.score - calls.train - calls.move;
  return calls;
}

}  // namespace

std::optional<CallSeconds> predicted_calls(const RunConfig& run, const Runtime& runtime) {
  if (!run.policy || run.parallel.cluster.empty() || runtime.rank() != 0) return {};
  try {
    return calls_on(read_machine(run, run.parallel.cluster, run.parallel.profile), run, runtime.ranks());
  } catch (const Error& error) {
    std::printf("note: the calls of an iteration are not predicted: %s\n", printable_lines(error.what()).c_str());
    return {};
  }
}

PlannedDeck read_planned_deck(const DeckArguments& a, const Runtime& runtime, int ranks, Replan replan, const Machine* machine) {
  PlannedDeck deck;
  deck.run = read_deck(a, runtime, deck.effective);
  if (!finds_layout(deck.run) && !finds_alpha(deck.run)) return deck;
  ranks = training_ranks(deck.run, ranks).size();
  MPI_Comm all;
  MPI_Comm_dup(runtime.world(), &all);
  Communicator world("world", mpi_transport(all, wait_policy_of(runtime.world())));
  Decision decision;
  collective_check(world, [&] {
    if (runtime.rank() != 0) return;
    const std::optional<Decision> kept = replan == Replan::unless_resumed ? of_checkpoint(deck.run, ranks) : std::nullopt;
    decision = kept ? *kept : found(deck.run, ranks, machine);
  });
  deck.notes = decision.notes;
  decision = Decision::of(text_of_first(world, decision.packed()));
  DeckArguments decided = a;
  decided.overrides.insert(decided.overrides.end(), decision.lines.begin(), decision.lines.end());
  decided.overrides.push_back("parallel.plan=deck");
  decided.quiet = true;
  deck.run = read_deck(decided, runtime, deck.effective);
  if (decision.found) deck.expected = decision.expected;
  return deck;
}

}  // namespace gyr
