// SPDX-License-Identifier: BSD-3-Clause
// Input decks: where the settings of a run come from (modules/settings/settings.hpp).
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

// What messages call a text of sections and keys.
struct TextKind {
  std::string_view name = "deck", sections = "sections such as model:, data: and train:, see input/ and gyrfalcon train --help";
  bool overridden = true;  // a command line may set its keys
};

class Deck {
 public:
  // Overrides are "section.key=value" and win over the file; the last one of a key wins. Error(missing) when there is
  // no such file, Error(config) naming file:line when its text is not a deck, Error(usage) when an override is not of
  // that form.
  static Deck read(const std::filesystem::path& file, std::span<const std::string> overrides = {}, const TextKind& = {});
  // The same from memory; messages call it `origin`.
  static Deck parse(const std::string& text, const std::string& origin, std::span<const std::string> overrides = {}, const TextKind& = {});
  // A deck that a checkpoint holds: keys that have another name now (renamed_keys.hpp) are read under it.
  static Deck stored(const std::string& text, const std::string& origin);
  // An empty deck that only collects declarations, for help: nothing is required of it.
  static Deck describe();

  // Lives as long as the deck. `effect`: of the settings in it that do not say another one.
  Section& section(std::string_view name, std::string_view help, Effect effect = Effect::course);
  void refuse_renamed() const;                // Error(config) for keys that have another name now, with file:line and that name
  void finish() const;                        // Error(config) for undeclared keys, with file:line and the nearest declared name
  std::string effective() const;              // YAML of every declared key and the value in use; reads back to the same settings
  std::vector<Declaration> settings() const;  // all that were declared
  std::string settings_text(const std::vector<std::string>& paths) const;  // as Section::told
  std::string help() const;                                                // key, default, unit, range and help by section, at most 120 columns wide

 private:
  static Deck of(YamlValue written, const std::string& origin, const TextKind& = {});
  explicit Deck(std::shared_ptr<deck::Group> root) : root_(std::move(root)) {}
  std::shared_ptr<deck::Group> root_;
};

}  // namespace gyr
