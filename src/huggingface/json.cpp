// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/json.hpp"

#include <unordered_set>
#include <vector>

#include "kernels/base/error.hpp"
#include "src/base/foreign_file.hpp"
#include "src/base/input_file.hpp"
#include "src/base/json_text.hpp"
#include "src/deck/yaml.hpp"

namespace gyr {

namespace {

using json = nlohmann::json;
constexpr std::size_t deepest = 16;

// Replaces Python's bare words for non-finite numbers, which JSON does not allow, by objects. Strings are left
// unchanged.
std::string quote_non_finite(std::string_view text) {
  const std::string_view words[] = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (!in_string) {
      bool found = false;
      for (const std::string_view word : words) {
        if (!rest.starts_with(word)) continue;
        out.append(R"({"__float__":")").append(word).append("\"}");
        i += word.size();
        found = true;
        break;
      }
      if (found) continue;
    }
    const std::size_t step = in_string && text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
    if (text[i] == '"') in_string = !in_string;
    out.append(rest.substr(0, step));
    i += step;
  }
  return out;
}

}  // namespace

json parse_json(std::string_view text, const std::string& origin) {
  if (const auto foreign = foreign_file(text); !foreign.empty()) fail(Exit::data, "{}: {}", origin, foreign);
  require(!zero_byte(text), Exit::data, "{}: is not valid JSON: it has a zero byte", origin);
  std::vector<std::unordered_set<std::string>> keys;
  std::size_t depth = 0;
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      require(++depth <= deepest, Exit::data, "{}: nested deeper than {} levels", origin, deepest);
      if (event == Event::object_start) keys.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      --depth;
      if (event == Event::object_end) keys.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      require(keys.back().insert(key).second, Exit::data, "{}: key `{}` is given twice in one object", origin, shown(key));
    }
    return true;
  };
  try {
    return json::parse(quote_non_finite(text), watch);
  } catch (const json::exception& error) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    require(begin != text.npos, Exit::data, "{}: is not valid JSON: it is empty", origin);
    require(text[begin] == '{' || text[begin] == '[', Exit::data, "{}: is not valid JSON, and seems to be text: it begins with `{}`", origin,
            shown(text.substr(begin, 40)));
    fail(Exit::data, "{}: is not valid JSON: {}", origin, shown(std::string_view(error.what()).substr(0, 200)));
  }
}

std::string read_text(const std::string& file, std::size_t most_bytes) { return text_of_file(file, most_bytes); }

}  // namespace gyr
