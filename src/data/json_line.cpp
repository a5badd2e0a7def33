// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/json_line.hpp"

#include <set>
#include <vector>

namespace gyr::json_line {

namespace {

// Parses the line as a tree and rejects repeated keys. nlohmann::json would keep the last of them, but other readers
// keep the first.
json parse(std::string_view line) {
  std::vector<std::set<std::string>> keys;  // keys read so far in each open object
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (std::size_t(depth) > max_depth) refuse("is nested deeper than {} levels", max_depth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      refuse("has the key '{}' twice", value.get<std::string>());
    return true;
  };
  try {
    return json::parse(line.begin(), line.end(), watch);
  } catch (const json::parse_error& error) {
    refuse("is not valid JSON at character {}: {}", error.byte, error.what());
  } catch (const json::out_of_range& error) {
    refuse("has a number that is too large: {}", error.what());
  }
}

}  // namespace

std::string keys_of(const json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items())
    if (keys.size() < 100) keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

std::string kind_of(const json& value) {
  const std::string name = value.type_name();
  return value.is_null() ? name : (value.is_structured() ? "an " : "a ") + name;
}

json parse_object(std::string_view line) {
  json row = parse(line);
  if (!row.is_object()) refuse("is {}, not a JSON object", kind_of(row));
  return row;
}

const json& value_of(const json& object, const std::string& key, const std::string& where) {
  const auto value = object.find(key);
  if (value == object.end()) refuse("has no key '{}'{} (keys: {})", key, where, keys_of(object));
  return *value;
}

const std::string& string_of(const json& object, const std::string& key, const std::string& where) {
  const json& value = value_of(object, key, where);
  if (!value.is_string()) refuse("has {} under '{}'{}, not a string", kind_of(value), key, where);
  return value.get_ref<const std::string&>();
}

}  // namespace gyr::json_line
