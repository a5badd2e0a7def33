// SPDX-License-Identifier: BSD-3-Clause
// Deck keys under other names. A deck or override with an old name of ours is rejected with the new one, and decks stored
// in checkpoints are read with old names mapped to new ones. An unknown key that another framework has is rejected with
// our key.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/deck/yaml.hpp"

namespace gyr {

struct RenamedKey {
  std::string_view before, now;  // full paths, as in "model.width" and "model.hidden_size"; both are in the same section
};

std::span<const RenamedKey> renamed_keys();
// New name of the key `path`; empty if it was not renamed.
std::string_view current_name(std::string_view path);

// A row of the table of names in other frameworks (foreign_keys.hpp).
struct ForeignKey {
  std::string_view names;   // names in other frameworks, separated by spaces
  std::string_view here;    // full path of the corresponding key
  std::string_view advice;  // how to write it here, where {} stands for the value; empty: `here` takes the value as it is
};
std::span<const ForeignKey> foreign_keys();
// A name in the form of these tables: lower case, underscores for dashes, no leading dashes.
std::string normalized(std::string_view name);
// Row of a table that has this normalized name; null if none has.
const ForeignKey* row_with(std::span<const ForeignKey> rows, std::string_view name);
// Our key for a name in another framework, or for an old name of ours; empty if there is none.
std::string_view key_called(const std::string& name);

// True if other programs use this name for the number of ranks, devices or nodes of a run.
bool counts_ranks(const std::string& name);

// A key that is not declared, as the user wrote it.
struct UnknownKey {
  std::string path, value;  // value on one line; empty: there is none
  bool in_file = false;     // true: in a deck, false: on the command line
};
// path: the path differs from a declared one only in case and dashes, or the table has the name with its section.
// name: only the last part of the path is compared.
enum class Match { path, name };
// Suggestion for an unknown key, such as "did you mean `train.steps`?" or "it is called optimizer.lr here: write ..."; empty
// if no name matches. `declared`: paths of the valid keys. `foreign`: also search the names in other frameworks.
std::string remedy_for(const UnknownKey&, std::span<const std::string> declared, Match, bool foreign = true);

// The deck with every renamed key under its new name.
YamlValue with_current_names(YamlValue deck);

}  // namespace gyr
