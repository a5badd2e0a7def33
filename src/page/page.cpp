// SPDX-License-Identifier: BSD-3-Clause
#include "src/page/page.hpp"

#include <cmath>
#include <cstdlib>

#include "kernels/base/error.hpp"
#include "kernels/base/scalar.hpp"
#include "src/page_parts.hpp"

namespace gyr {

namespace {

// JSON for a script element. Escapes '<', so that no text in the data can end the element.
std::string embedded(const Json& json) {
  std::string text;
  for (const char c : json_text(json)) {
    if (c == '<') text += "\\u003c";
    else text += c;
  }
  return text;
}

void replace(std::string& page, std::string_view place, std::string_view with) {
  const std::size_t at = page.find(place);
  ensure(at != std::string::npos, "a page has no {}", place);
  page.replace(at, place.size(), with);
}

}  // namespace

// The data is inserted last, because its texts may look like placeholders.
std::string page_of(std::string_view form, const Json& data) {
  std::string page(form);
  replace(page, "@HEAD@", page_head);
  replace(page, "@TOOLS@", page_tools);
  replace(page, "@NUMBERS@", embedded(data));
  return page;
}

// The body is inserted last, so that its texts are never searched for placeholders. Its own comes before all data.
std::string page_of(std::string_view form, std::string_view body, const Json& data) {
  std::string page = page_of(form, data);
  replace(page, "@BODY@", body);
  return page;
}

Json rounded(const std::vector<double>& values, int digits) {
  Json json = Json::array();
  for (const double v : values) {
    const double r = v == std::floor(v) ? v : std::strtod(fmt::format("{:.{}g}", v, digits).c_str(), nullptr);
    if (r == std::floor(r) && std::abs(r) < 1e15) json.push_back(Index(r));
    else json.push_back(r);
  }
  return json;
}

}  // namespace gyr
