// SPDX-License-Identifier: BSD-3-Clause
// Parses and fills chat templates.
#include "src/data/chat_template.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "modules/settings/nearest.hpp"

namespace gyr {
namespace {

const std::vector<std::string> placeholders{"prompt", "response", "role", "content"};

// Returns the character that the escape `\letter` denotes. `character`: position of the letter, for the message.
char escaped(char letter, std::size_t character) {
  switch (letter) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case '\\': return '\\';
  }
  fail(Exit::usage, "template, character {}: \\{} is not an escape; the escapes are \\n, \\t, \\r and \\\\", character, letter);
}

void append(std::vector<Utterance>& utterances, std::string_view text, bool learned) {
  if (text.empty()) return;
  if (utterances.empty() || utterances.back().special || utterances.back().learned != learned) utterances.push_back({"", {}, learned});
  utterances.back().text += text;
}

}  // namespace

void encode(const Utterance& utterance, const Tokenizer& tokenizer, std::vector<std::int32_t>& ids, TextPosition& position) {
  const std::string_view text = position == TextPosition::after_token ? tokenizer.text_after(ids.back(), utterance.text) : utterance.text;
  tokenizer.encode(text, ids, Tokenizer::Specials::as_text, position);
  if (!text.empty()) position = TextPosition::after_text;
  if (!utterance.special) return;
  ids.push_back(*utterance.special);
  position = TextPosition::after_token;
}

void add_unknown_marks(const std::string& text, const Tokenizer& tokenizer, std::vector<std::string>& marks) {
  for (std::size_t begin = 0; (begin = text.find("<|", begin)) != text.npos; begin += 2) {
    const std::size_t end = text.find("|>", begin + 2);
    if (end == text.npos) return;
    const std::string mark = text.substr(begin, end + 2 - begin);
    const auto id = tokenizer.id_of(mark);
    const bool plain = mark.find_first_of(" \n") != mark.npos || (id && tokenizer.is_special(*id));
    if (!plain && std::ranges::find(marks, mark) == marks.end()) marks.push_back(mark);
  }
}

ChatTemplate::ChatTemplate(std::string_view format, const Tokenizer& tokenizer) {
  std::string literal;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool doubled = i + 1 < format.size() && format[i + 1] == c;
    if (c == '\\') {
      require(i + 1 < format.size(), Exit::usage, "template, character {}: the template ends in a single \\; write \\\\ for a literal backslash",
              i + 1);
      ++i;
      literal += escaped(format[i], i);
    } else if ((c == '{' || c == '}') && doubled) {
      literal += format[++i];
    } else if (c == '{') {
      const std::size_t end = format.find('}', i);
      require(end != format.npos, Exit::usage, "template, character {}: {{ is not closed; write {{{{ for a literal brace", i + 1);
      add_literal(literal, tokenizer);
      literal.clear();
      add_placeholder(format.substr(i + 1, end - i - 1), i + 1);
      i = end;
    } else {
      require(c != '}', Exit::usage, "template, character {}: }} has no opening brace; write }}}} for a literal brace", i + 1);
      literal += c;
    }
  }
  add_literal(literal, tokenizer);
  const auto found = std::count_if(parts_.begin(), parts_.end(), [](const Part& p) { return p.placeholder.has_value(); });
  require(found == 2, Exit::usage, "the template has {} placeholder{}; it needs {{prompt}} and then {{response}}, or {{role}} and then {{content}}",
          found, found == 1 ? "" : "s");
  mark_learned();
}

// Splits the text at special tokens. Decoding the ids between them restores the original text if the tokenizer is
// lossless.
void ChatTemplate::add_literal(const std::string& text, const Tokenizer& tokenizer) {
  find_unknown_marks(text, tokenizer);
  for (const Tokenizer::Part& part : tokenizer.divided_at_specials(text)) parts_.push_back({{std::string(part.text), part.special}, {}});
}

void ChatTemplate::add_placeholder(std::string_view name, std::size_t character) {
  const auto known = std::find(placeholders.begin(), placeholders.end(), name);
  if (known == placeholders.end()) {
    const std::string near = nearest(name, placeholders);
    fail(Exit::usage, "template, character {}: there is no placeholder {{{}}}, {}{{prompt}} and {{response}}, or {{role}} and {{content}}", character,
         name, near.empty() ? "only " : fmt::format("did you mean {{{}}}? There are ", near));
  }
  const auto number = std::size_t(known - placeholders.begin());
  std::size_t before = 0;
  for (const Part& part : parts_) before += part.placeholder.has_value();
  if (before == 0) of_messages_ = number >= 2;
  require(
      before < 2 && number == before + (of_messages_ ? 2 : 0), Exit::usage,
      "template, character {}: {{{}}} is out of place; a template has {{prompt}} and then {{response}}, or {{role}} and then {{content}}, each once",
      character, name);
  parts_.push_back({{}, before});
}

void ChatTemplate::find_unknown_marks(const std::string& text, const Tokenizer& tokenizer) { add_unknown_marks(text, tokenizer, unknown_marks_); }

ChatTemplate::Parts::const_iterator ChatTemplate::response() const {
  return std::ranges::find_if(parts_, [](const Part& p) { return p.placeholder == 1; });
}

void ChatTemplate::mark_learned() {
  auto part = parts_.begin() + (response() - parts_.cbegin());
  for (bool open = true; open && part != parts_.end(); ++part) {
    part->utterance.learned = true;
    open = !part->utterance.special;
  }
}

void ChatTemplate::fill(std::string_view first, std::string_view second, bool learn, std::vector<Utterance>& utterances) const {
  fill_until(parts_.end(), {first, second}, learn, utterances);
}

void ChatTemplate::fill_until(Parts::const_iterator end, std::array<std::string_view, 2> values, bool learn,
                              std::vector<Utterance>& utterances) const {
  for (auto part = parts_.begin(); part != end; ++part) {
    const Utterance& message = part->utterance;
    const bool learned = learn && message.learned;
    if (message.special) {
      utterances.push_back({"", message.special, learned});
    } else {
      append(utterances, part->placeholder ? values[*part->placeholder] : std::string_view(message.text), learned);
    }
  }
}

std::vector<Utterance> ChatTemplate::question(std::string_view prompt, std::string_view assistant) const {
  std::vector<Utterance> utterances;
  if (of_messages_) fill("user", prompt, false, utterances);
  fill_until(response(), {of_messages_ ? assistant : prompt, {}}, false, utterances);
  return utterances;
}

void ChatTemplate::begin_reply(std::string_view assistant, std::vector<Utterance>& utterances) const {
  fill_until(response(), {assistant, {}}, false, utterances);
}

std::optional<std::int32_t> ChatTemplate::closing_mark() const {
  const auto closing = std::ranges::find_if(parts_, [](const Part& p) { return p.utterance.learned && p.utterance.special; });
  return closing == parts_.end() ? std::nullopt : closing->utterance.special;
}

}  // namespace gyr
