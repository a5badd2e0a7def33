// SPDX-License-Identifier: BSD-3-Clause
// Man pages and shell completion scripts, generated from the program's help.
#pragma once

#include <string>
#include <vector>

#include "src/commands/command_line.hpp"

namespace gyr {

struct Page {
  std::string file, text;  // file name, such as "gyrfalcon-train.1"; content in roff
};

// A page for the program and for each command, and gyrfalcon-deck.5 for the deck keys. `keys` is the text of that page.
std::vector<Page> man_pages(const CommandHelp& program, const std::string& version, const std::string& keys);

// Completion scripts for commands, options, the valid values of an option, files, and the keys of a deck after its
// name.
std::string bash_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys);
std::string zsh_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys);
std::string fish_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys);

// True if the command takes overrides of deck keys.
bool takes_deck(const CommandHelp&);

}  // namespace gyr
