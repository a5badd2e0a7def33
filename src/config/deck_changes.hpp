// SPDX-License-Identifier: BSD-3-Clause
// What a resumed run's deck says otherwise than the one its checkpoint was saved under.
#pragma once

#include <string>
#include <vector>

#include "src/deck/deck.hpp"

namespace gyr {

struct DeckChange {
  std::string key, was, is;
  Effect effect;
};

// Of two effective decks, in the order of their keys. A key that one of them lacks has its default there: the program that wrote it did
// not know it. Nothing where one is empty.
std::vector<DeckChange> deck_changes(const std::string& before, const std::string& now);

// A table of the changes that mean something, and a line of those that do not; empty where nothing has changed.
std::string text_of(const std::vector<DeckChange>&, const std::string& since);

bool changes_function(const std::vector<DeckChange>&);
// Exit::config naming the keys that change what the model computes, unless there are none.
void require_same_function(const std::vector<DeckChange>&, const std::string& since);

}  // namespace gyr
