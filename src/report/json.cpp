// SPDX-License-Identifier: BSD-3-Clause
#include "src/report/json.hpp"

#include <fstream>
#include <iterator>

namespace gyr {

std::string json_text(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

Json json_in(std::string_view text) { return Json::parse(text, nullptr, false); }

Json json_of_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return json_in(std::string(std::istreambuf_iterator<char>(in), {}));
}

}  // namespace gyr
