// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/prompt_line.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "src/data/foreign_fields.hpp"
#include "src/data/json_line.hpp"
#include "src/jinja/problem.hpp"

namespace gyr {
namespace {

using namespace json_line;

using Ids = std::vector<std::int32_t>;

Ids ids_in(const json& list, const PromptFormat& f, const std::string& key) {
  if (f.chat) refuse("has token ids under '{}', which a template cannot format; leave out --template", key);
  const std::int64_t vocab_size = f.tokenizer ? f.tokenizer->size() : std::int64_t(std::numeric_limits<std::int32_t>::max());
  Ids ids;
  for (const json& id : list) {
    if (!id.is_number_integer()) refuse("has {} as token {} under '{}', not a token id", kind_of(id), ids.size() + 1, key);
    const bool below = id.is_number_unsigned() && id.get<std::uint64_t>() < std::uint64_t(vocab_size);
    if (!below) refuse("has the token id {} under '{}', but the ids are 0 to {}", id.dump(), key, vocab_size - 1);
    ids.push_back(std::int32_t(id.get<std::int64_t>()));
  }
  return ids;
}

void require_tokenizer_for(const PromptFormat& f, const std::string& key, const char* what) {
  if (!f.tokenizer) refuse("has {} under '{}', which is encoded with a tokenizer; give --tokenizer", what, key);
}

Ids encoded(const std::vector<Utterance>& utterances, const Tokenizer& tokenizer) {
  Ids ids;
  TextPosition position = TextPosition::begin;
  for (const Utterance& utterance : utterances) encode(utterance, tokenizer, ids, position);
  return ids;
}

// An empty prompt is the end-of-document token, as in `generate`.
Ids ids_of_text(const std::string& text, const PromptFormat& f, const std::string& key) {
  require_tokenizer_for(f, key, "a text");
  if (f.chat) return encoded(f.chat->text.question(text, f.chat->assistant), *f.tokenizer);
  Ids ids = f.tokenizer->encode(text, Tokenizer::Specials::complete);
  if (ids.empty() && f.tokenizer->eod()) ids.push_back(*f.tokenizer->eod());
  return ids;
}

// Refuses a conversation that has no message, or that ends with the answer.
void require_open_end(const json& messages, const ConversationFormat& f, const std::string& key) {
  if (messages.empty()) refuse("has no message under '{}'", key);
  const json& last = messages.back();
  if (!last.is_object() || last.value(f.role, json()) != f.assistant) return;
  refuse("ends with a message of '{}', but the model writes the answer to a prompt; leave out that message", f.assistant);
}

Ids ids_of_messages(const json& messages, std::string_view line, const PromptFormat& f, const std::string& key) {
  require_tokenizer_for(f, key, "messages");
  if (!f.chat) refuse("has messages under '{}', which a template formats; give --template, as in --template @FOLDER of the model", key);
  if (!f.chat->text.of_messages()) refuse("has messages under '{}', but the template has {{prompt}}; write {{role}} and {{content}} in it", key);
  if (!messages.is_array()) refuse("has {} under '{}', not a list of messages", kind_of(messages), key);
  require_open_end(messages, *f.chat, key);
  if (const JinjaChat* jinja = f.chat->text.jinja())
    return encoded(jinja->question(read_chat_input(line, key, f.chat->role, f.chat->content)), *f.tokenizer);
  const ChatTemplate& format = *f.chat->text.format();
  std::vector<Utterance> utterances;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format(" in message {}", i + 1);
    if (!messages[i].is_object()) refuse("has {}{}, not an object", kind_of(messages[i]), where);
    format.fill(string_of(messages[i], f.chat->role, where), string_of(messages[i], f.chat->content, where), false, utterances);
  }
  format.begin_reply(f.chat->assistant, utterances);
  return encoded(utterances, *f.tokenizer);
}

// Key of the prompt: the one of `prompt` and `messages` that the line has.
const std::string& key_of(const json& row, const std::string& prompt, const std::string& messages) {
  const bool both = prompt != messages && row.contains(prompt) && row.contains(messages);
  if (both) refuse("has a prompt under '{}' and under '{}'; leave out one of them", prompt, messages);
  if (row.contains(prompt)) return prompt;
  if (row.contains(messages)) return messages;
  const std::string options = message_options([&](const char* name) { return row.contains(name); });
  refuse("has no key '{}' and no key '{}' (keys: {}); name the key of the prompt with {}", prompt, messages, keys_of(row),
         options.empty() ? "--key, or with --template and --prompt-key" : "--template and " + options);
}

// Refuses integers of more than 64 bits, which the JSON library would round to a double. `line` is valid JSON.
void require_exact_integers(std::string_view line) {
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '"') {
      for (++at; line[at] != '"'; ++at) at += line[at] == '\\';
    } else if (std::isdigit(static_cast<unsigned char>(line[at]))) {
      const std::size_t end = std::min(line.find_first_not_of("0123456789.eE+-", at), line.size());
      const std::string_view number = line.substr(at, end - at);
      std::uint64_t value = 0;
      const std::uint64_t most = at > 0 && line[at - 1] == '-' ? std::uint64_t(1) << 63 : std::numeric_limits<std::uint64_t>::max();
      const bool integer = number.find_first_of(".eE") == number.npos;
      if (integer && (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc() || value > most))
        refuse("has the integer {}, which has more than 64 bits; write it as a string", number);
      at = end - 1;
    }
  }
}

}  // namespace

PromptLine read_prompt(std::string_view line, const PromptFormat& f) {
  try {
    json row = parse_object(line);
    require_exact_integers(line);
    const std::string messages = f.chat ? f.chat->messages : "messages";
    const std::string key = key_of(row, f.chat ? f.chat->prompt : f.key, messages);
    const json& value = row[key];
    PromptLine result;
    if (key == messages || (value.is_array() && !value.empty() && value[0].is_object())) result.tokens = ids_of_messages(value, line, f, key);
    else if (value.is_array()) result.tokens = ids_in(value, f, key);
    else if (value.is_string()) result.tokens = ids_of_text(value.get<std::string>(), f, key);
    else refuse("has {} under '{}', not a text or a list of token ids", kind_of(value), key);
    if (result.tokens.empty()) refuse("has a prompt of no tokens under '{}'", key);
    row.erase(key);
    result.fields = row.dump();
    return result;
  } catch (const Problem& problem) {
    return {{}, {}, problem.what};
  } catch (const jinja::Problem& problem) {
    return {{}, {}, problem.what()};
  }
}

}  // namespace gyr
