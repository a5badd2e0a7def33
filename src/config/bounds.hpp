// SPDX-License-Identifier: BSD-3-Clause
// Limits on combinations of deck keys. The limit of a single key is checked where it is declared (model_config.hpp,
// limits.hpp).
#pragma once

#include <functional>

#include "src/deck/deck.hpp"

namespace gyr {

struct RunConfig;
struct ModelConfig;

// Exit::config with the keys, their origin in the deck, and the value that is too large. The model is checked as soon
// as it is read, because later code relies on the sizes of its weights.
void check_bounds(const ModelConfig&, const Section& model);
void check_bounds(const RunConfig&, const Deck&);
// The same checks for a run that was not read from a deck. The callback formats the values of the given keys for
// messages.
using SettingsText = std::function<std::string(const std::vector<std::string>& keys)>;
void check_bounds(const RunConfig&, const SettingsText& settings_text);

}  // namespace gyr
