// SPDX-License-Identifier: BSD-3-Clause
// What the program says of itself, in the forms that shells and `man` read.
#pragma once

#include <string>
#include <vector>

#include "src/commands/command_line.hpp"

namespace gyr {

struct Page {
  std::string file, text;  // "gyrfalcon-train.1"
};

// A page of the program and of each command, and one of the keys of a deck, gyrfalcon-deck.5, which is what footers that hold `keys` refer to.
std::vector<Page> man_pages(const CommandHelp& program, const std::string& version, const std::string& keys);

// Scripts that complete commands, options, the choices of an option, files, and behind a deck its keys.
std::string bash_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys);
std::string zsh_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys);
std::string fish_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys);

// Whether a command's words change a deck.
bool takes_deck(const CommandHelp&);

}  // namespace gyr
