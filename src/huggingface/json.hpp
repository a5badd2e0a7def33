// SPDX-License-Identifier: BSD-3-Clause
// JSON of files that others wrote. What two readers may understand differently is refused: a key given twice, text that is no UTF-8.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gyr {

// Values of a JSON text nested at most 16 levels deep; Exit::data naming `origin` for any other text. Python's bare words Infinity,
// -Infinity and NaN become {"__float__": "Infinity"} and so on, their other spelling.
nlohmann::json parse_json(std::string_view text, const std::string& origin);

// A whole file of at most `most_bytes`; Exit::missing, Exit::data, Exit::io.
std::string read_text(const std::string& file, std::size_t most_bytes);

}  // namespace gyr
