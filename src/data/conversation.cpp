// SPDX-License-Identifier: BSD-3-Clause
// Reads one JSON line as a fine-tuning example.
#include "src/data/conversation.hpp"

#include "src/data/foreign_fields.hpp"
#include "src/data/json_line.hpp"
#include "src/jinja/problem.hpp"

namespace gyr {
namespace {

using namespace json_line;

void add_messages(const json& messages, const ConversationFormat& f, std::vector<Utterance>& utterances) {
  const ChatTemplate& format = *f.text.format();
  if (!messages.is_array()) refuse("has {} under '{}', not a list of messages", kind_of(messages), f.messages);
  bool learns = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format(" in message {}", i + 1);
    if (!messages[i].is_object()) refuse("has {}{}, not an object", kind_of(messages[i]), where);
    const std::string& role = string_of(messages[i], f.role, where);
    const bool learn = role == f.assistant;
    format.fill(role, string_of(messages[i], f.content, where), learn, utterances);
    learns |= learn;
  }
  if (!learns) refuse("has no turn of '{}' to learn from", f.assistant);
}

// Refuses a line without prompt or response, and names the options for the keys that it has.
void require_prompt(const json& row, const ConversationFormat& f) {
  for (const std::string& key : {f.prompt, f.response}) {
    if (row.contains(key)) continue;
    const std::string options = prompt_options([&](const char* name) { return row.contains(name); });
    refuse("has no key '{}' (keys: {}); name the keys with {}", key, json_line::keys_of(row),
           options.empty() ? "--prompt-key and --response-key" : options);
  }
}

// A template with {role} and {content} reads messages; one with {prompt} and {response} reads these keys.
void require_template_of(const json& row, const ConversationFormat& f) {
  if (row.contains(f.messages) || !row.contains(f.prompt) || !row.contains(f.response)) return;
  refuse("has no key '{}' (keys: {}); for these keys, write {{prompt}} and {{response}} in the template", f.messages, json_line::keys_of(row));
}

// The same for a list of messages.
const json& messages_of(const json& row, const ConversationFormat& f) {
  const std::string options = row.contains(f.messages) ? "" : message_options([&](const char* name) { return row.contains(name); });
  if (!options.empty()) refuse("has no key '{}' (keys: {}); name the keys with {}", f.messages, json_line::keys_of(row), options);
  require_template_of(row, f);
  return value_of(row, f.messages);
}

}  // namespace

Conversation read_conversation(std::string_view line, const ConversationFormat& f) {
  Conversation result;
  try {
    if (const JinjaChat* jinja = f.text.jinja()) {
      result.utterances = jinja->fill(read_chat_input(line, f.messages, f.role, f.content), f.assistant);
      return result;
    }
    const json row = parse_object(line);
    if (f.text.of_messages()) {
      add_messages(messages_of(row, f), f, result.utterances);
    } else {
      require_prompt(row, f);
      const std::string prompt = string_of(row, f.prompt);
      f.text.format()->fill(prompt, string_of(row, f.response), true, result.utterances);
    }
  } catch (const Problem& problem) {
    result.problem = problem.what;
  } catch (const jinja::Problem& problem) {
    result.problem = problem.what();
  }
  if (!result.problem.empty()) result.utterances.clear();
  return result;
}

}  // namespace gyr
