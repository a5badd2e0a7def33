// SPDX-License-Identifier: BSD-3-Clause
// JSON that this program writes and reads again. Reader and writer are compiled only once, in json.cpp, because each
// takes the compiler several seconds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gyr {

using Json = nlohmann::ordered_json;

// JSON on one line, or indented by `indent` spaces. Values that are not finite become null; all others can be read back
// exactly. Bytes that are not UTF-8, as in file names, become U+FFFD.
std::string json_text(const Json&, int indent = -1);

// Parses a text that may be incomplete; is_discarded() is true if it is not JSON.
Json json_in(std::string_view text);
Json json_of_file(const std::string& file);  // like json_in; is_discarded() is also true if the file cannot be read

}  // namespace gyr
