// SPDX-License-Identifier: BSD-3-Clause
// How an example of a dialogue is written down: a format string whose placeholders stand for the example's own words.
//
//   {prompt} {response}   filled once per example, as in "<|user|>{prompt}<|assistant|>{response}<|end|>"
//   {role} {content}      filled once per turn,    as in "<|im_start|>{role}\n{content}<|im_end|>\n"
//
// Both placeholders of a pair stand in the template once, in this order. \n, \t, \r and \\ are escapes; {{ and }} are
// braces. Special tokens spelt in the template become their ids; spelt in the example's words they stay text, so that
// data cannot forge a turn. What a model learns to say is the second placeholder and the template's text behind it, up
// to and with the first special token (the end mark that closes an answer).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// A stretch of an example: text that no special token is looked for in, or one special token.
struct Utterance {
  std::string text;
  std::optional<std::int32_t> special;
  bool learned = false;  // its tokens are to be predicted; all others are only read
};

// Appends the ids of a utterance.
void encode(const Utterance& utterance, const Tokenizer& tokenizer, std::vector<std::int32_t>& ids);

class ChatTemplate {
 public:
  // Exit::usage, saying where, for an unknown placeholder (with the nearest name), a missing, repeated or misplaced
  // one, an unknown escape, or a single brace.
  ChatTemplate(std::string_view format, const Tokenizer& tokenizer);

  bool of_turns() const { return of_turns_; }  // {role} and {content}, not {prompt} and {response}

  // Appends the filled template to `utterances`. Neighbouring texts of which both or neither are learned become one, so that
  // the tokens are those of the whole text, cut only at special tokens and where learning begins or ends: a prompt gets
  // the ids it has when text is generated behind it. Nothing is learned unless `learn`.
  void fill(std::string_view first, std::string_view second, bool learn, std::vector<Utterance>& utterances) const;

  // All that stands before the model's answer to `prompt`: for a template of turns, that of "user" and the start of one
  // of `assistant`.
  std::vector<Utterance> question(std::string_view prompt, std::string_view assistant) const;
  // The special token that closes an answer; nothing where the template has none.
  std::optional<std::int32_t> closing_mark() const;

  // What the template spells in the manner of a special token, <|...|>, though the tokenizer has none of this name.
  const std::vector<std::string>& unknown_marks() const { return unknown_marks_; }

 private:
  struct Part {
    Utterance utterance;
    std::optional<std::size_t> placeholder;  // 0 or 1: of the pair, instead of a text of its own
  };
  using Parts = std::vector<Part>;
  void add_literal(const std::string& text, const Tokenizer& tokenizer);
  void add_placeholder(std::string_view name, std::size_t character);
  void find_unknown_marks(const std::string& text, const Tokenizer& tokenizer);
  void mark_learned();
  Parts::const_iterator answer() const;  // the second placeholder
  void fill_until(Parts::const_iterator end, std::array<std::string_view, 2> values, bool learn, std::vector<Utterance>& utterances) const;

  Parts parts_;
  std::vector<std::string> unknown_marks_;
  bool of_turns_ = false;
};

}  // namespace gyr
