// SPDX-License-Identifier: BSD-3-Clause
// Settings as named values, in a fixed order: their hash, and the first one in which two lists differ.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace gyr::retro {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

// XXH3 of all names and values, 16 hexadecimal digits.
std::string hash_of(const NamedValues&);

// Exit::config naming the first setting that differs, with both values, unless the lists are equal. `file`: the file that
// holds the stored ones. `remedy`: second half of the message.
void require_same(const NamedValues& stored, const NamedValues& asked, const std::filesystem::path& file, const std::string& remedy);

}  // namespace gyr::retro
