// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/plan.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include "src/base/limits.hpp"
#include "src/base/terminal.hpp"
#include "src/checkpoint/header.hpp"
#include "src/commands/command.hpp"
#include "src/commands/layout_report.hpp"
#include "src/commands/plan_page.hpp"
#include "src/commands/plan_report.hpp"
#include "src/commands/planned_deck.hpp"
#include "src/commands/policy_report.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/search_report.hpp"
#include "src/page/page_file.hpp"
#include "src/planner/machine/run_islands.hpp"
#include "src/pretrained/new_head.hpp"
#include "src/report/transfer.hpp"
#include "src/train/feed.hpp"

namespace gyr {

namespace {

void write_page(const std::string& name, const std::string& page) {
  write_page_file(name, page);
  std::printf("%s: open it in a browser\n", name.c_str());
}

constexpr std::size_t most_placed = 10;  // layouts that --explain ranks at most to find the place of the deck's own

// Searches for the fastest iteration of policy training and prints the report, or writes a page of the fastest.
void explain_policy(const PlanArguments& a, const RunConfig& run, int ranks, const Machine& machine) {
  SearchStatus status;
  PolicySearchOptions options;
  options.training.watch = status.watch();
  if (a.search_seconds > 0) options.seconds = a.search_seconds;
  options.bytes = [&](const RunConfig& found) { return bytes_if_fits(RunPlan(found, ranks), machine.cluster); };
  const RunConfig here = on_cluster(run, machine.cluster, ranks);
  const PassMachine of_passes{machine.cluster, machine.profile ? &*machine.profile : nullptr};
  const PolicySearchResult found = policy_search(here, ranks, of_passes, options);
  const std::string text = policy_search_report(here, ranks, machine.cluster, found, a.tokens);  // throws if no layout fits
  if (a.page.empty()) return void(std::printf("%s", text.c_str()));
  const RunPlan plan(found.best.front().run, ranks);
  write_page(a.page, plan_page(plan, PredictedRun(plan, machine), machine, a.tokens));
}

// Searches for the fastest layout and prints the report. With --html, writes a page with the plan of that layout
// instead.
void explain(const PlanArguments& a, const RunConfig& run, int ranks, const std::optional<Machine>& machine) {
  require(machine.has_value(), Exit::usage,
          "--explain searches for the fastest layout on a machine; name its description with --cluster: "
          "input/clusters/ has some, and mpiexec -n N gyrfalcon probe --out FILE measures this one");
  if (run.policy) return explain_policy(a, run, ranks, *machine);
  SearchOptions options;
  options.place_within = most_placed;
  if (a.search_seconds > 0) options.seconds = a.search_seconds;
  const SearchResult found = search_with_progress(run, ranks, *machine, options);
  const std::string text = search_report(run, ranks, machine->cluster, found, a.tokens);  // throws if no layout fits
  if (a.page.empty()) {
    std::printf("%s", text.c_str());
    return;
  }
  const RunPlan plan(with(on_cluster(run, machine->cluster, ranks), found.best.front().choice), ranks);
  write_page(a.page, plan_page(plan, PredictedRun(plan, *machine), *machine, a.tokens, &found));
}

void print_warning(const std::string& warning) {
  if (!warning.empty()) std::printf("%s\n", prose("warning: " + warning).c_str());
  std::fflush(stdout);
}

// Warning about --tokens of less than a step; otherwise empty.
std::string doubtful_tokens(const RunConfig& run, double tokens) {
  const double of_step = double(run.largest_batch() * run.train.seq_length);
  if (run.policy || tokens <= 0 || tokens >= of_step) return "";
  return fmt::format("--tokens {0:.0f} is less than a step reads, {1:.0f} tokens; a unit may be missing, as in {0:.0f}B", tokens, of_step);
}

void print_warnings(const RunConfig& run, double tokens) {
  for (const std::string& remark : remarks_on(run)) std::printf("%s\n", prose(remark).c_str());
  print_warning(doubtful_vocabulary(run));
  print_warning(doubtful_tokens(run, tokens));
}

// Prints the reason for which train would stop, after the plan, which needs no data. Published decks name no data.
void print_refusal_of_data(const RunConfig& run) {
  if (!run.policy && run.data.prefixes.empty())
    return void(std::printf("\nnote: the deck names no training data yet; train needs data.prefixes=[PREFIX]\n"));
  if (const std::string why = refusal_of_data(run); !why.empty()) std::printf("\n"), print_warning("train stops: " + why);
}

// Notes on models whose shape is planned, but that train cannot start from.
void print_models_without_weights(const RunConfig& run) {
  for (const FurtherModel& m : run.models)
    if (m.init_from.empty() && m.name != "critic")
      std::printf(
          "%s\n",
          prose(fmt::format("note: models.{0}.init_from is empty: planned in the shape of the trained model; train needs the weights of {0}", m.name))
              .c_str());
}

// The command that searches for the fastest layout of the same run.
std::string search_command(const PlanArguments& a, int ranks) {
  std::vector<std::string> words{"gyrfalcon", "plan", a.deck};
  words.insert(words.end(), a.overrides.begin(), a.overrides.end());
  for (const auto& [option, value] : {std::pair("--init-from", a.init_from), std::pair("-n", fmt::format("{}", ranks)),
                                      std::pair("--cluster", a.cluster), std::pair("--profile", a.profile)})
    if (!value.empty()) words.insert(words.end(), {option, value});
  if (a.tokens > 0) words.insert(words.end(), {"--tokens", fmt::format("{:.0f}", a.tokens)});
  words.push_back("--explain");
  for (std::string& word : words) word = shell_word(word);
  return fmt::format("{}", fmt::join(words, " "));
}

// First lines of a plan on a cluster: how to find the fastest layout, and the devices that the plan does not use.
std::string hint_of_layout(const PlanArguments& a, const Machine& machine, int ranks) {
  const Index devices = machine.cluster.devices();
  std::string text = "This is the layout of the deck. To search for the fastest:\n  " + search_command(a, ranks) + "\n";
  if (devices > ranks)
    text += prose(fmt::format("It uses {} of the {} devices of the cluster; --ranks {} takes all of them.\n", ranks, devices, devices));
  return text + "\n";
}

MemoryLimits limits_of(const RunConfig& run, const std::optional<Machine>& machine) {
  require(run.device_bytes > 0 || machine, Exit::usage,
          "--longest needs the memory size of a device; set memory.device_bytes, or name a description of "
          "the machine with --cluster");
  MemoryLimits limits{double(run.device_bytes), std::numeric_limits<double>::infinity()};
  if (machine) limits.device = machine->cluster.device.usable();
  if (machine && machine->cluster.host.memory > 0) limits.host = machine->cluster.host.memory;
  return limits;
}

void print_longest(const RunConfig& run, int ranks, const MemoryLimits& limits) {
  constexpr double seconds_between_lines = 5;
  std::string report;
  {
    StatusLine line(stderr, seconds_between_lines);
    report = longest_report(run, ranks, limits, [&](const std::string& text) {
      if (line.due()) line.show(text);
    });
  }
  std::printf("%s", report.c_str());
}

}  // namespace

int plan(const PlanArguments& given) {
  PlanArguments a = given;
  a.shapes_only = true;
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        std::string effective;
        require(!a.longest || (!a.explain && a.page.empty()), Exit::usage, "--longest cannot be combined with --explain or --html; leave them out");
        if (runtime.rank() == 0) check_page_file(a.page);
        const bool asks_more = a.explain || a.longest || a.ranks != 0 || a.tokens > 0 || !(a.cluster + a.profile + a.page).empty();
        require(
            !a.explain_layout || !asks_more, Exit::usage,
            "--explain-layout always uses parallel.tensor of the deck and takes no other option; leave out --explain, --longest, --ranks, --cluster, "
            "--profile, --tokens and --html");
        const RunConfig asked = read_deck(a, runtime, effective);
        if (a.explain_layout) {
          if (runtime.rank() == 0) std::printf("%s", layout_report(asked).c_str());
          return;
        }
        require(
            asked.models.empty() || !((a.explain && !asked.policy) || a.longest), Exit::usage,
            "--explain and --longest plan the trained model alone, without models.{}; leave these options out: plan then checks the layout of the "
            "deck, which parallel.* and models.{}.* set",
            asked.models.empty() ? "" : asked.models[0].name, asked.models.empty() ? "" : asked.models[0].name);
        if (runtime.rank() == 0) check_token_files(asked), print_warnings(asked, a.tokens);
        const std::optional<Machine> machine =
            a.cluster.empty() ? machine_of(asked, asked.parallel.cluster, asked.parallel.profile) : machine_of(asked, a.cluster, a.profile);
        const int ranks = planned_ranks(asked, a.ranks, runtime);
        if (a.explain) {
          if (runtime.rank() == 0) explain(a, asked, ranks, machine), print_refusal_of_data(asked);
          return;
        }
        if (a.longest) {
          if (runtime.rank() == 0)
            print_longest(machine ? on_cluster(asked, machine->cluster, ranks) : asked, ranks, limits_of(asked, machine)),
                print_refusal_of_data(asked);
          return;
        }
        PlanArguments again = a;
        again.quiet = true;
        const PlannedDeck deck = read_planned_deck(again, runtime, ranks, Replan::always, machine ? &*machine : nullptr);
        const TrainConfig& t = deck.run.train;
        if (!t.init_from.empty()) check_initial(t.init_from, deck.run.model, t.new_head);
        if (t.branch) check_branch(t, read_header(t.init_from).step);
        const RunPlan plan(machine ? on_cluster(deck.run, machine->cluster, ranks) : deck.run, ranks);
        std::optional<PredictedRun> predicted;
        if (machine) predicted.emplace(plan, *machine);
        if (runtime.rank() != 0) return;
        if (!deck.notes.empty()) std::printf("%s\n\n", prose(deck.notes).c_str());
        if (a.page.empty() && machine && deck.notes.empty() && (asked.models.empty() || asked.policy))
          std::printf("%s", hint_of_layout(a, *machine, ranks).c_str());
        if (a.page.empty()) std::printf("%s", plan_report(plan, predicted ? cluster_report(plan, *predicted, *machine, a.tokens) : "").c_str());
        if (!a.page.empty()) write_page(a.page, plan_page(plan, *predicted, *machine, a.tokens));
        print_models_without_weights(asked), print_refusal_of_data(asked);
        require_fits(plan, machine ? &*machine : nullptr);
      },
      LastLine::of_failures);
}

void add_plan(Command& app, Action& action) {
  auto a = std::make_shared<PlanArguments>();
  Command* command = app.add_command(
      "plan", "Print memory, FLOPs and communication of a run without running it (train --dry-run); exit code 78 if it does not fit in memory");
  add_deck(*command, *a);
  describe_deck(*command);
  command->add_option("-n,--ranks", a->ranks, "Number of ranks of the run; default: that of the deck's grid")->between(1, double(most_ranks));
  Option* cluster = command->add_option(
      "--cluster", a->cluster, "Cluster description (from input/clusters/ or gyrfalcon probe): also predict step time; default: parallel.cluster");
  command->add_option("--profile", a->profile, "Kernel times on that cluster, measured by gyrfalcon profile DECK --out FILE")->needs(cluster);
  command
      ->add_option("--tokens", a->tokens,
                   "With --cluster: tokens of the whole training run, as in 300B or 1T, for its days and energy (policy training: of the answers); "
                   "default: those of the deck's steps")
      ->needs(cluster)
      ->between(1, 1e18);
  command->add_flag("--explain", a->explain,
                    "Instead, search for the fastest layout of --ranks ranks on --cluster: print the ten fastest, the place of the "
                    "deck's own, why each is slower than the first, and why the others were rejected. Policy training: the fastest pairs of a "
                    "layout of training and one of generation");
  Option* limit =
      command
          ->add_option(
              "--search-seconds", a->search_seconds,
              "With --explain: after this processor time, or four times as long on a busy machine, predict the most promising layouts and end the "
              "search; 0: search until no other layout can be faster")
          ->between(0, 1e6);
  command->add_flag(
      "--explain-layout", a->explain_layout,
      "Instead, print how each kind of layer is sharded over tensor-parallel ranks: operator by operator, with the bytes sent and the cost "
      "of the best alternative");
  command->add_flag("--longest", a->longest,
                    "Instead, print the longest sequences that fit in memory.device_bytes, or in a device of --cluster, for each activation policy");
  command
      ->add_option("--html", a->page,
                   "With --cluster: write one self-contained HTML page instead of text: timeline of every pipeline stage, memory over a step, "
                   "communication between ranks, and with --explain the fastest layouts")
      ->needs(cluster);
  command->callback([a, limit, &action] {
    require(a->explain || !limit->given(), Exit::usage, "--search-seconds limits the search of --explain, which is missing; add --explain");
    action = [a] { return plan(*a); };
  });
}

}  // namespace gyr
