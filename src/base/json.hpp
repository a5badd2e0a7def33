// SPDX-License-Identifier: BSD-3-Clause
// JSON that this program writes and reads again. Reader and writer are compiled only once, in json.cpp, because each
// takes the compiler several seconds. Nothing is assumed about JSON that is read: another program, or a failing disk, may
// have changed it.
#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace gyr {

using Json = nlohmann::ordered_json;

// JSON on one line, or indented by `indent` spaces. Values that are not finite become null; all others can be read back
// exactly. Bytes that are not UTF-8, as in file names, become U+FFFD.
std::string json_text(const Json&, int indent = -1);

// Largest line of metrics.jsonl and largest small JSON file that is read, in bytes. The time to parse an object grows
// with the square of the number of its keys.
inline constexpr std::size_t most_json = std::size_t(64) << 10;

// Parses a text that may be incomplete; is_discarded() is true if it is not JSON.
Json json_in(std::string_view text);
// The same for a small file; is_discarded() is also true if the file cannot be read.
Json json_of_file(const std::filesystem::path&);

// Fields of an object that may have any shape. The result is NaN, nullopt or "" if the key is absent or its value has
// another type.
double number_in(const Json& object, const char* key);
std::optional<std::int64_t> integer_in(const Json& object, const char* key);
std::string text_in(const Json& object, const char* key);

// Visits each line that is a JSON object, in the last `last_bytes` bytes of the file, the first of which may lie inside
// a line. Returns the number of lines that are neither empty nor objects. Throws the errors of InputFile.
std::int64_t visit_json_lines(const std::filesystem::path&, const std::function<void(const Json&)>& visit,
                              std::int64_t last_bytes = std::numeric_limits<std::int64_t>::max());

}  // namespace gyr
