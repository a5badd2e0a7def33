// SPDX-License-Identifier: BSD-3-Clause
// One line of JSON as an example to learn answers from.
#include "src/data/conversation.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "kernels/error.hpp"

namespace gyr {
namespace {

using json = nlohmann::json;

// What is wrong with a line; never leaves this file.
struct Problem {
  std::string what;
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Problem{fmt::format(text, std::forward<Args>(args)...)};
}

// The whole line as a tree. nlohmann would keep the last of two equal keys, where other readers keep the first.
json parse(std::string_view line) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (std::size_t(depth) > max_json_depth) refuse("is nested deeper than {} levels", max_json_depth);
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
  }
}

std::string kind_of(const json& value) {
  const std::string name = value.type_name();
  return value.is_null() ? name : (value.is_structured() ? "an " : "a ") + name;
}

std::string keys_of(const json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items())
    if (keys.size() < 100) keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

// `where` is "" or names the message, as in " in message 3".
const json& value_of(const json& object, const std::string& key, const std::string& where) {
  const auto value = object.find(key);
  if (value == object.end()) refuse("has no key '{}'{} (keys: {})", key, where, keys_of(object));
  return *value;
}

const std::string& string_of(const json& object, const std::string& key, const std::string& where = "") {
  const json& value = value_of(object, key, where);
  if (!value.is_string()) refuse("has {} under '{}'{}, not a string", kind_of(value), key, where);
  return value.get_ref<const std::string&>();
}

void add_turns(const json& messages, const ConversationFormat& f, std::vector<Utterance>& utterances) {
  if (!messages.is_array()) refuse("has {} under '{}', not a list of messages", kind_of(messages), f.messages);
  bool learns = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format(" in message {}", i + 1);
    if (!messages[i].is_object()) refuse("has {}{}, not an object", kind_of(messages[i]), where);
    const std::string& role = string_of(messages[i], f.role, where);
    const bool learn = role == f.assistant;
    f.text.fill(role, string_of(messages[i], f.content, where), learn, utterances);
    learns |= learn;
  }
  if (!learns) refuse("has no turn of '{}' to learn from", f.assistant);
}

}  // namespace

Conversation read_conversation(std::string_view line, const ConversationFormat& f) {
  Conversation result;
  try {
    const json row = parse(line);
    if (!row.is_object()) refuse("is {}, not a JSON object", kind_of(row));
    if (f.text.of_turns()) {
      add_turns(value_of(row, f.messages, ""), f, result.utterances);
    } else {
      const std::string prompt = string_of(row, f.prompt);
      f.text.fill(prompt, string_of(row, f.response), true, result.utterances);
    }
  } catch (const Problem& problem) {
    result.utterances.clear();
    result.problem = problem.what;
  }
  return result;
}

}  // namespace gyr
