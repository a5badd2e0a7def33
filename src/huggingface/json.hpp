// SPDX-License-Identifier: BSD-3-Clause
// Parses JSON files that other programs wrote. Ambiguous input is an error: a key given twice, or text that is not
// valid UTF-8.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gyr {

// Parses JSON nested at most 16 levels deep. Throws Exit::data naming `origin` if the text is invalid. Python's bare
// words Infinity, -Infinity and NaN become {"__float__": "Infinity"} and so on, the spelling of newer versions of
// transformers.
nlohmann::json parse_json(std::string_view text, const std::string& origin);

// Reads a complete file of at most `most_bytes`. Throws Exit::missing, Exit::data or Exit::io.
std::string read_text(const std::string& file, std::size_t most_bytes);

}  // namespace gyr
