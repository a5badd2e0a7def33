// SPDX-License-Identifier: BSD-3-Clause
// Each number of a deck is bounded where it is declared (model_config.hpp, limits.hpp); here is what they must not make together.
#pragma once

#include <functional>

#include "src/deck/deck.hpp"

namespace gyr {

struct RunConfig;
struct ModelConfig;

// Exit::config naming the keys, where each was given and what they make. The first as soon as the model is read, because the sizes of its
// weights are taken for granted from then on.
void check_bounds(const ModelConfig&, const Section& model);
void check_bounds(const RunConfig&, const Deck&);
// The same of a run that no deck says as it is: `told` shows the values of these keys.
using SettingsText = std::function<std::string(const std::vector<std::string>& keys)>;
void check_bounds(const RunConfig&, const SettingsText& settings_text);

}  // namespace gyr
