// SPDX-License-Identifier: BSD-3-Clause
// The deck of a run on the command line: its file, changes to it, and a model whose shape its keys default to.
#pragma once

#include "src/commands/command_line.hpp"
#include "src/commands/runtime.hpp"
#include "src/config/run_config.hpp"

namespace gyr {

struct DeckArguments {
  std::string deck, init_from;
  std::vector<std::string> overrides;
};

void add_deck(Command&, DeckArguments&);
// All keys a deck may have, made from the declarations themselves.
std::vector<Declaration> deck_keys();
// --help lists what the deck may say.
void describe_deck(Command&);
// `effective`: the deck as it is understood.
RunConfig read_deck(const DeckArguments&, const Runtime&, std::string& effective);
// The ranks of a run that is looked at and not started: as many as are asked for, or else as there are, or else, of one, as the deck's grid has.
int planned_ranks(const RunConfig&, int asked, const Runtime&);

}  // namespace gyr
