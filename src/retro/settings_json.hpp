// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes the parts that config.json of a project and of its queries have in common. Functions that read throw
// Exit::data, or an exception of the JSON library, for a value that is not valid; read_config adds the name of the file.
#pragma once

#include <functional>

#include "src/base/json.hpp"
#include "src/retro/project.hpp"

namespace gyr::retro {

// Calls parse(json) with the object in the file. Exit::missing if there is none, Exit::data with the reason if it is damaged. `remedy`: end
// of the message.
void read_config(const std::filesystem::path& file, const std::string& remedy, const std::function<void(const Json&)>& parse);

// The same for a file with any JSON value.
void read_json(const std::filesystem::path& file, const std::string& remedy, const std::function<void(const Json&)>& parse);

void require_format(const Json&, std::string_view format);
std::int64_t count_in(const Json& object, const char* key, std::int64_t least, std::int64_t most);
// A checksum of 16 hexadecimal digits, or nothing.
std::string sum_in(const Json& object, const char* key);

Json json_of(const std::vector<CorpusMark>&);
std::vector<CorpusMark> marks_in(const Json& array);

}  // namespace gyr::retro
