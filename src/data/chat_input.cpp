// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/chat_input.hpp"

#include <algorithm>

#include "src/data/foreign_fields.hpp"
#include "src/jinja/json_value.hpp"
#include "src/jinja/problem.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr std::size_t max_variables = 1000;  // keys of chat_template_kwargs

bool is_plain_word(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; });
}

Value role_value(const std::string& role, std::size_t message) {
  return jinja::text_value(jinja::Text(role, is_plain_word(role) ? jinja::Origin{} : origin_of(message)));
}

// Type of a value with its article, in the terms of JSON.
std::string kind_of_value(const Value& value) {
  if (value.none()) return "null";
  if (value.string()) return "a string";
  if (value.list()) return "an array";
  return value.dict() ? "an object" : value.boolean() ? "a boolean" : "a number";
}

std::string keys_of(const Dict& dict) {
  std::string keys;
  for (const auto& [key, value] : dict.items)
    if (keys.size() < 100) {
      const std::string_view name = key.string()->text.bytes();
      keys += (keys.empty() ? "" : ", ") + std::string(name.substr(0, valid_utf8_prefix(name.substr(0, 60))));
    }
  return keys;
}

// The message with the template's own names for its keys, without keys of null.
Dict renamed(const Dict& message, std::size_t number, const std::string& role, const std::string& content) {
  const std::string where = fmt::format("in message {}", number + 1);
  const Value* speaker = message.find(role);
  if (!speaker) jinja::refuse("has no key '{}' {} (keys: {})", role, where, keys_of(message));
  if (!speaker->string()) jinja::refuse("has {} under '{}' {}, not a string", kind_of_value(*speaker), role, where);
  Dict result;
  for (const auto& [key, value] : message.items) {
    const std::string& name = key.string()->text.bytes();
    if (value.none()) continue;
    if (name == role) result.set(jinja::text_value("role"), role_value(speaker->string()->text.bytes(), number));
    else if (name == content) result.set(jinja::text_value("content"), jinja::with_origin(value, origin_of(number)));
    else if (name != "role" && name != "content") result.set(key, jinja::with_origin(value, origin_of(number)));
  }
  return result;
}

// Gives a message's reasoning the names that templates use, as transformers does.
Dict with_reasoning_names(const Dict& message) {
  const Value* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"})
    if (!reasoning) reasoning = message.find(name);
  if (!reasoning) return message;
  Dict result;
  result.set(jinja::text_value("thinking"), *reasoning);
  for (const auto& [key, value] : message.items) result.set(key, value);
  result.set(jinja::text_value("reasoning_content"), *reasoning);
  return result;
}

}  // namespace

Value message_of(std::string_view role, std::string_view content, std::size_t message) {
  return jinja::dict_value({{jinja::text_value("role"), role_value(std::string(role), message)},
                            {jinja::text_value("content"), jinja::text_value(jinja::Text(std::string(content), origin_of(message)))}});
}

ChatInput read_chat_input(std::string_view line, const std::string& messages, const std::string& role, const std::string& content) {
  const Value row = jinja::value_of_json(line, {other_data});
  if (!row.dict()) jinja::refuse("is {}, not a JSON object", kind_of_value(row));
  const Value* list = row.dict()->find(messages);
  if (!list) {
    const std::string options = message_options([&](const char* name) { return row.dict()->find(name) != nullptr; });
    jinja::refuse("has no key '{}' (keys: {}){}", messages, keys_of(*row.dict()), options.empty() ? "" : "; name the keys with " + options);
  }
  if (!list->list()) jinja::refuse("has {} under '{}', not a list of messages", kind_of_value(*list), messages);
  ChatInput input;
  input.bytes = line.size();
  for (const Value& message : list->list()->items) {
    const std::size_t number = input.messages.size();
    if (!message.dict()) jinja::refuse("has {} in message {}, not an object", kind_of_value(message), number + 1);
    input.messages.push_back(jinja::dict_value(with_reasoning_names(renamed(*message.dict(), number, role, content))));
  }
  for (const char* name : {"tools", "documents"})
    if (const Value* value = row.dict()->find(name)) input.variables.emplace_back(name, *value);
  const Value* more = row.dict()->find("chat_template_kwargs");
  if (more && !more->none() && !more->dict()) jinja::refuse("has {} under 'chat_template_kwargs', not an object", kind_of_value(*more));
  if (more && more->dict() && more->dict()->items.size() > max_variables)
    jinja::refuse("has {} keys under 'chat_template_kwargs'; the maximum is {}", more->dict()->items.size(), max_variables);
  if (more && more->dict())
    for (const auto& [key, value] : more->dict()->items) input.variables.emplace_back(key.string()->text.bytes(), value);
  return input;
}

}  // namespace gyr
