// SPDX-License-Identifier: BSD-3-Clause
// Keys of decks that have another name now. A deck or override that says an old one is refused with the new one; decks stored in checkpoints
// were written before and are read as if they said the new ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/deck/yaml.hpp"

namespace gyr {

struct RenamedKey {
  std::string_view before, now;  // "model.width", "model.hidden_size": in the same section
};

std::span<const RenamedKey> renamed_keys();
// The name that the key `path` has now; empty where it was never renamed.
std::string_view name_now(std::string_view path);
// Keys as Megatron-LM's options or Hugging Face's config.json name them, where ours stand elsewhere, and what they are called here.
std::span<const RenamedKey> foreign_keys();
std::string_view name_here(std::string_view path);
// The deck with every renamed key under its name of now.
YamlValue with_names_of_now(YamlValue deck);

}  // namespace gyr
