// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/json.hpp"

#include <algorithm>
#include <limits>

#include "src/base/input_file.hpp"

namespace gyr {

std::string json_text(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

Json json_in(std::string_view text) { return Json::parse(text, nullptr, false); }

Json json_of_file(const std::filesystem::path& file) { return json_in(text_or_nothing(file, most_json)); }

double number_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<std::int64_t> integer_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number_integer()) return {};
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int64_t>::max())) return {};
  return at->get<std::int64_t>();
}

std::string text_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

namespace {

// Calls visit(line) for each line of the file from byte `at` on. A longer line than most_json is cut to most_json + 1
// bytes.
template <class Visit>
void visit_lines(const InputFile& file, std::int64_t at, Visit&& visit) {
  std::string block(std::size_t(64) << 10, '\0'), line;
  for (std::size_t count; (count = file.read(at, block.data(), block.size())) > 0; at += std::int64_t(count)) {
    std::string_view rest(block.data(), count);
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      line += rest.substr(0, std::min(end, most_json + 1 - line.size()));
      if (end == rest.npos) break;
      visit(line);
      line.clear();
      rest.remove_prefix(end + 1);
    }
  }
  if (!line.empty()) visit(line);
}

}  // namespace

std::int64_t visit_json_lines(const std::filesystem::path& path, const std::function<void(const Json&)>& visit, std::int64_t last_bytes) {
  const InputFile file(path);
  std::int64_t broken = 0;
  visit_lines(file, std::max<std::int64_t>(0, file.size() - last_bytes), [&](const std::string& line) {
    if (line.empty()) return;
    const Json json = line.size() > most_json ? Json() : json_in(line);
    if (json.is_object()) visit(json);
    else ++broken;
  });
  return broken;
}

}  // namespace gyr
