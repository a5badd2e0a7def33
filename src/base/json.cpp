// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/json.hpp"

#include <fstream>
#include <sstream>

namespace gyr {

std::string json_text(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

Json json_in(std::string_view text) { return Json::parse(text, nullptr, false); }

Json json_of_file(const std::string& file) {
  std::ostringstream text;  // unlike an iterator, this does not throw if a folder is read
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return json_in(text.str());
}

}  // namespace gyr
