// SPDX-License-Identifier: BSD-3-Clause
// Arguments that describe a run: the deck file, key=value overrides, and a pretrained model (--init-from) whose shape
// sets the defaults of model keys.
#pragma once

#include "src/commands/command_line.hpp"
#include "src/commands/runtime.hpp"
#include "src/config/run_config.hpp"

namespace gyr {

struct DeckArguments {
  std::string deck, init_from;
  std::vector<std::string> overrides;
  bool resume = false;       // the run in the output folder continues: what it started from need not be given again
  bool shapes_only = false;  // a plan: train.init_from and models.NAME.init_from may name a deck, and the latter may be empty
  bool quiet = false;        // the deck has been read before: its notes are not printed again
};

void add_deck(Command&, DeckArguments&);
// All keys that a deck may have, collected from their declarations in the code.
std::vector<Declaration> deck_keys();
// Table of these keys, at most `width` characters wide. Narrow tables have fewer columns.
std::string key_table(const std::vector<Declaration>& keys, int width);
// Adds a footer to --help that refers to the commands that describe deck keys.
void describe_deck(Command&);
// Advice on a key that is written without its section or under its name in another framework, such as "did you mean
// `train.steps=3`?". Empty if the name is unknown.
std::string deck_key_advice(const std::string& name, const std::string& value);
// Advice on an option that a command with these long options does not have: --ranks for a number of GPUs, otherwise a deck key.
std::string option_advice(const std::string& name, const std::string& value, const std::vector<std::string>& options);
// `effective`: receives the deck with every key and the value in use.
RunConfig read_deck(const DeckArguments&, const Runtime&, std::string& effective);
// Number of ranks of a run that is planned but not started: `asked` if positive, else the ranks of this MPI job if
// there are several, else the least number that the deck's grid needs.
int planned_ranks(const RunConfig&, int asked, const Runtime&);

}  // namespace gyr
