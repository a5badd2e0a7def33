// SPDX-License-Identifier: BSD-3-Clause
// The run a checkpoint came from, by the deck it carries.
#pragma once

#include "src/checkpoint/header.hpp"
#include "src/run_config.hpp"

namespace gyr {

inline RunConfig trained_run(const std::filesystem::path& checkpoint) {
  Deck deck = Deck::parse(read_header(checkpoint).deck, checkpoint.string());
  return read_run_config(deck);
}

}  // namespace gyr
