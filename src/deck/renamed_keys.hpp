// SPDX-License-Identifier: BSD-3-Clause
// Deck keys that were renamed. A deck or override with an old name is rejected with the new one. Decks stored in
// checkpoints are read with old names mapped to new ones.
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
// Keys under the names of Megatron-LM's options or Hugging Face's config.json that Gyrfalcon has in another section,
// with their names here.
std::span<const RenamedKey> foreign_keys();
std::string_view gyrfalcon_name(std::string_view path);
// The deck with every renamed key under its new name.
YamlValue with_current_names(YamlValue deck);

}  // namespace gyr
