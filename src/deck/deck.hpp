// SPDX-License-Identifier: BSD-3-Clause
// Input decks: the source of a run's settings (modules/settings/settings.hpp).
//
//   Deck deck = Deck::read("run.yaml", overrides);
//   Section& s = deck.section("mamba", "state-space branch");
//   Index chunk_size = s.get("chunk_size", 128, "SSD chunk length in tokens").power_of_two().at_most(512);
//   deck.finish();
#pragma once

#include <filesystem>
#include <span>

#include "modules/settings/settings.hpp"
#include "src/deck/yaml.hpp"

namespace gyr {

namespace deck {
struct Group;
}

// Words that messages use for a file of sections and keys.
struct TextKind {
  std::string_view name = "deck", sections = "sections such as model:, data: and train:, see input/ and gyrfalcon keys";
  bool overridden = true;  // true if the command line may override its keys
};

inline constexpr const char* free_name = "NAME";  // placeholder of a free name, as in models.NAME.precision

class Deck {
 public:
  // Overrides are "section.key=value" and take precedence over the file; the last one of a key wins. Error(missing) if
  // there is no such file, Error(config) naming file:line if its text is not a deck, Error(usage) if an override does
  // not have that form.
  static Deck read(const std::filesystem::path& file, std::span<const std::string> overrides = {}, const TextKind& = {});
  // The same for text in memory, which messages call `origin`.
  static Deck parse(const std::string& text, const std::string& origin, std::span<const std::string> overrides = {}, const TextKind& = {});
  // Deck stored in a checkpoint: renamed keys (renamed_keys.hpp) are read under their new names.
  static Deck stored(const std::string& text, const std::string& origin);
  // Empty deck that only collects declarations, for help. It requires no key. `names`: those of sections whose names are
  // free (Section::names).
  static Deck describe(std::vector<std::string> names = {free_name});

  // The section lives as long as the deck. `effect`: default of the settings in it.
  Section& section(std::string_view name, std::string_view help, Effect effect = Effect::course);
  bool given(std::string_view section) const;  // true if the text or the command line has keys of this section
  void refuse_renamed() const;                 // Error(config) for keys with an old name, with file:line and the new name
  void finish() const;  // Error(config) for undeclared keys, with file:line and the name here (renamed_keys.hpp) or the nearest one
  // Names of the text that `known`, a deck of the same kind from describe(), does not declare: one complaint a line; empty if
  // there are none. For a text that cannot be read completely.
  std::string unknown_to(Deck known) const;
  std::string effective() const;              // YAML of every declared key and the value in use; reads back to the same settings
  std::vector<Declaration> settings() const;  // all declared settings
  std::string settings_text(const std::vector<std::string>& paths) const;  // text of the values of these keys, like that of Section
  std::string help() const;                                                // key, default, unit, range and help by section, at most 120 columns wide

 private:
  static Deck of(YamlValue written, const std::string& origin, const TextKind& = {});
  explicit Deck(std::shared_ptr<deck::Group> root) : root_(std::move(root)) {}
  std::shared_ptr<deck::Group> root_;
};

}  // namespace gyr
