// SPDX-License-Identifier: BSD-3-Clause
// JSON that this program writes, for people and for itself, and reads again. Both are compiled once: the library's reader and writer are
// templates of several seconds each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gyr {

using Json = nlohmann::ordered_json;

// On one line, or indented by so many. Numbers that are not finite are null, all others read back exactly. Bytes that are no UTF-8, as names
// of files may have, become U+FFFD.
std::string json_text(const Json&, int indent = -1);

// Of a text that a run may have left unfinished: is_discarded() where it is no JSON.
Json json_in(std::string_view text);
Json json_of_file(const std::string& file);  // also where it cannot be read

}  // namespace gyr
