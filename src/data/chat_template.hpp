// SPDX-License-Identifier: BSD-3-Clause
// Chat template: a format string whose placeholders are replaced by the strings of an example.
//
//   {prompt} {response}   filled once per example, as in "<|user|>{prompt}<|assistant|>{response}<|end|>"
//   {role} {content}      filled once per turn,    as in "<|im_start|>{role}\n{content}<|im_end|>\n"
//
// A template contains both placeholders of one pair, each once, in this order. \n, \t, \r and \\ are escapes; {{ and }}
// are literal braces. Special tokens spelt in the template become their ids. Special tokens spelt in the example stay
// text, so that data cannot forge a turn. The target tokens (not masked from the loss) are the second placeholder and the
// template text after it, up to and including the first special token (the end mark of the reply).
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// Part of a filled template: either text that is encoded without special tokens, or one special token.
struct Utterance {
  std::string text;
  std::optional<std::int32_t> special;
  bool learned = false;  // true: target tokens; false: context that is masked from the loss
};

// Appends the token ids of an utterance to `ids`. `position` is that of the utterance, and then that of the next one.
void encode(const Utterance& utterance, const Tokenizer& tokenizer, std::vector<std::int32_t>& ids, TextPosition& position);

// Adds the strings of the form <|...|> in a template's text that are not special tokens of the tokenizer to `marks`.
void add_unknown_marks(const std::string& text, const Tokenizer& tokenizer, std::vector<std::string>& marks);

class ChatTemplate {
 public:
  // Exit::usage with the character position for an unknown placeholder (with the nearest name), a missing, repeated or
  // misplaced one, an unknown escape, or a single brace.
  ChatTemplate(std::string_view format, const Tokenizer& tokenizer);

  bool of_messages() const { return of_messages_; }  // true: placeholders {role} and {content}; false: {prompt} and {response}

  // True if there is neither text nor a special token between the two placeholders.
  bool joins_placeholders() const { return response() != parts_.begin() && std::prev(response())->placeholder.has_value(); }

  // Appends the filled template to `utterances`. Adjacent texts with equal `learned` are merged. Text is therefore
  // split only at special tokens and where the target tokens begin or end, and a prompt gets the same ids as at
  // inference. If `learn` is false, all of it is masked from the loss.
  void fill(std::string_view first, std::string_view second, bool learn, std::vector<Utterance>& utterances) const;

  // The generation prompt: everything before the model's reply to `prompt`. A template of turns gives one turn of
  // "user", then the beginning of a turn of `assistant`.
  std::vector<Utterance> question(std::string_view prompt, std::string_view assistant) const;
  // Appends the begin of a turn of `assistant`, up to its content. Only for a template of turns.
  void begin_reply(std::string_view assistant, std::vector<Utterance>& utterances) const;
  // The special token that ends a reply, used as stop token; empty if the template has none.
  std::optional<std::int32_t> closing_mark() const;

  // Strings of the form <|...|> in the template that are not special tokens of the tokenizer. They may be typing
  // errors.
  const std::vector<std::string>& unknown_marks() const { return unknown_marks_; }

 private:
  struct Part {
    Utterance utterance;
    std::optional<std::size_t> placeholder;  // index in the pair (0 or 1) if this part is a placeholder; otherwise the part has its own text
  };
  using Parts = std::vector<Part>;
  void add_literal(const std::string& text, const Tokenizer& tokenizer);
  void add_placeholder(std::string_view name, std::size_t character);
  void find_unknown_marks(const std::string& text, const Tokenizer& tokenizer);
  void mark_learned();
  Parts::const_iterator response() const;  // the second placeholder: {response} or {content}
  void fill_until(Parts::const_iterator end, std::array<std::string_view, 2> values, bool learn, std::vector<Utterance>& utterances) const;

  Parts parts_;
  std::vector<std::string> unknown_marks_;
  bool of_messages_ = false;
};

}  // namespace gyr
