// SPDX-License-Identifier: BSD-3-Clause
// Values that are written with a unit: integers of decks, such as 24GB or 10k, and numbers of cluster descriptions, such
// as 80GB or 400Gb/s.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Value of `text` for the deck key `path`, if its unit suits the key. Keys of bytes (..._bytes) take kB, MB, GB and TB
// (powers of 1000) and KiB, MiB, GiB and TiB (powers of 1024). Keys of steps (..._steps, ..._every) take k and M. Sequence
// lengths (..._seq_length) take k for 1024 tokens, as the field names context lengths.
std::optional<Index> amount_in(std::string_view text, std::string_view path);

// Remedy for text that is an integer with a unit that the key does not take; empty if the text is no such integer.
std::string advice_on_amount(std::string_view text, std::string_view path);

// Value of `text` in the unit of the key `path` of a cluster description (device.memory: GiB), if it is a number with a unit
// of the same kind. A byte has eight bits: 400Gb/s is 50 in GB/s.
std::optional<double> quantity_in(std::string_view text, std::string_view path);

// Remedy for text that is no number of a key with a unit; empty for other keys.
std::string advice_on_quantity(std::string_view text, std::string_view path);

// Unit of a key of a cluster description; empty if it has none.
std::string_view unit_of_key(std::string_view path);

}  // namespace gyr
