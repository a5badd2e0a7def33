// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/deck_arguments.hpp"

#include <algorithm>

#include "src/commands/notes.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr {

void add_deck(Command& command, DeckArguments& a) {
  command.add_option("deck", a.deck, "Input deck (YAML)")->required();
  command.add_option("--init-from", a.init_from, "Hugging Face folder or checkpoint (.h5) whose weights a new run starts from (train.init_from)");
  command.add_option("overrides", a.overrides, "Overrides of deck keys, as in parallel.tensor=2 train.steps=10");
}

std::vector<Declaration> deck_keys() {
  Deck deck = Deck::describe();
  read_run_config(deck);
  return deck.settings();
}

void describe_deck(Command& command) {
  command.footer([] {
    Deck deck = Deck::describe();
    read_run_config(deck);
    return "\nKeys of the deck. Each can also be set as key=value on the command line:\n\n" + deck.help() +
           "\nMFU = 3 x forward FLOPs per token x tokens per second / (ranks x peak FLOP/s). Forward FLOPs count the causal half of\n"
           "attention and the SSM as a plain recurrence, without recomputation. The peak of a CPU rank is its GEMM throughput, measured at start.\n";
  });
}

RunConfig read_deck(const DeckArguments& a, const Runtime& runtime, std::string& effective) {
  std::vector<std::string> overrides = a.overrides;
  if (!a.init_from.empty()) overrides.push_back("train.init_from=" + a.init_from);
  Deck deck = Deck::read(a.deck, overrides);
  const std::string from = read_init_from(deck);
  RunDefaults defaults;
  if (!from.empty()) {
    defaults = defaults_of(from, notes_of(runtime));
    defaults.precision = RunDefaults().precision;  // precision and sequence length come from the deck, not from the model
    defaults.seq_length = RunDefaults().seq_length;
  }
  RunConfig run = read_run_config(deck, defaults);
  check_padding(run);
  for (const std::string& note : idle_keys(deck, run))
    if (const Note print_line = notes_of(runtime)) print_line(note);
  deck.finish();
  effective = deck.effective();
  return run;
}

int planned_ranks(const RunConfig& run, int asked, const Runtime& runtime) {
  if (asked > 0) return asked;
  if (runtime.ranks() > 1) return runtime.ranks();
  return run.parallel.least_ranks();
}

}  // namespace gyr
