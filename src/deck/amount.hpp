// SPDX-License-Identifier: BSD-3-Clause
// Integers of decks that are written with a unit, such as 24GB or 10k.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Value of `text` for the deck key `path`, if its unit suits the key. Keys of bytes (..._bytes) take kB, MB, GB and TB
// (powers of 1000) and KiB, MiB, GiB and TiB (powers of 1024). Keys of steps (..._steps, ..._every) take k and M.
std::optional<Index> amount_in(std::string_view text, std::string_view path);

// Remedy for text that is an integer with a unit that the key does not take; empty if the text is no such integer.
std::string advice_on_amount(std::string_view text, std::string_view path);

}  // namespace gyr
