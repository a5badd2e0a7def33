// SPDX-License-Identifier: BSD-3-Clause
// Differences between the deck of a resumed run and the deck that its checkpoint was saved with.
#pragma once

#include <string>
#include <vector>

#include "src/deck/deck.hpp"
#include "src/engine/config/learning_rate.hpp"

namespace gyr {

struct DeckChange {
  std::string key, was, is;
  Effect effect;
};

// Changes between two effective decks, in the order of the program's keys; keys that only the old deck knows follow. A
// key that one deck lacks has its default there, because the program that wrote the deck did not know it. Empty if one
// of the decks is empty.
std::vector<DeckChange> deck_changes(const std::string& before, const std::string& now);

// Table of the changes that affect results, and a line with those that do not; empty if nothing changed.
std::string text_of(const std::vector<DeckChange>&, const std::string& since);

// The old values as overrides of the command line that a shell passes on, "optimizer.lr=0.002 'model.pattern=P x 2'". Keys
// that this program does not know are left out. Empty if only the layout has changed.
std::string old_values(const std::vector<DeckChange>&);

// Remedy for changes of what the model computes: the old values, or another run.
std::string remedy_for_function(const std::vector<DeckChange>&);

// Note about a learning rate whose decay ends elsewhere because train.steps has changed; empty if it does not.
std::string text_of_moved_decay(const std::vector<DeckChange>&, const LearningRate&);

// Warning about a branch (train.branch) whose learning rate differs from that of its parent where it branches off, with the
// remedy; empty if the rates are close. `position`: in the unit of each schedule.
std::string text_of_jump(const LearningRate& parent, const LearningRate& branch, std::int64_t parent_position, std::int64_t position,
                         std::int64_t step);

bool changes_function(const std::vector<DeckChange>&);
// Exit::config naming the keys that change what the model computes, if there are any.
void require_same_function(const std::vector<DeckChange>&, const std::string& since);

}  // namespace gyr
